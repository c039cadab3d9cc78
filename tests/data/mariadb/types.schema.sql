DROP DATABASE IF EXISTS shop;
CREATE DATABASE shop CHARACTER SET utf8mb4;
USE shop;
CREATE TABLE types (
  id INT NOT NULL PRIMARY KEY,
  a_tinyint TINYINT, a_tinyint_unsigned TINYINT UNSIGNED, a_boolean BOOLEAN, a_smallint SMALLINT, a_mediumint MEDIUMINT,
  an_int INT, an_int_unsigned INT UNSIGNED, a_bigint BIGINT, a_bigint_unsigned BIGINT UNSIGNED,
  a_float FLOAT, a_double DOUBLE, a_decimal DECIMAL(10, 3), a_decimal_wide DECIMAL(38, 10), a_decimal_whole DECIMAL(20, 0),
  a_date DATE, a_datetime DATETIME, a_datetime3 DATETIME(3), a_datetime6 DATETIME(6),
  a_timestamp TIMESTAMP NULL, a_timestamp3 TIMESTAMP(3) NULL, a_timestamp6 TIMESTAMP(6) NULL,
  a_time TIME, a_time6 TIME(6), a_year YEAR,
  a_bit1 BIT(1), a_bit20 BIT(20), a_bit64 BIT(64),
  an_enum ENUM('a', 'ž', 'with,comma'), a_set SET('x', 'y', 'z'), a_json JSON,
  a_char CHAR(5), a_varchar VARCHAR(50), a_latin1 VARCHAR(50) CHARACTER SET latin1, a_text MEDIUMTEXT,
  a_binary BINARY(4), a_varbinary VARBINARY(20), a_blob BLOB, a_uuid UUID
);
CREATE TABLE dates (id INT NOT NULL PRIMARY KEY, strict_date DATE NOT NULL, strict_datetime DATETIME(6) NOT NULL, strict_timestamp TIMESTAMP(6) NOT NULL,
  loose_date DATE, loose_datetime DATETIME, loose_timestamp TIMESTAMP NULL);
CREATE TABLE finish (id INT NOT NULL PRIMARY KEY);
INSERT INTO types (id, a_decimal, a_datetime6) VALUES (1, 1.500, '2026-11-30 10:00:00.000001');
INSERT INTO dates VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00');
