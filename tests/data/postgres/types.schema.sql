CREATE SCHEMA shop;
CREATE TYPE shop.mood AS ENUM ('sad', 'ok', 'žádná');
CREATE TABLE shop.types (
  id INT PRIMARY KEY,
  a_boolean BOOLEAN, a_smallint SMALLINT, an_int INT, a_bigint BIGINT, a_real REAL, a_double DOUBLE PRECISION,
  a_numeric NUMERIC(10, 3), a_numeric_wide NUMERIC(38, 10), a_numeric_whole NUMERIC(20, 0), a_numeric_free NUMERIC, a_money MONEY,
  a_date DATE, a_timestamp TIMESTAMP, a_timestamp3 TIMESTAMP(3), a_timestamptz TIMESTAMPTZ, a_timestamptz3 TIMESTAMPTZ(3),
  a_time TIME, a_time3 TIME(3), a_timetz TIMETZ, an_interval INTERVAL,
  a_bit1 BIT(1), a_bit20 BIT(20), a_varbit BIT VARYING(70),
  an_enum shop.mood, a_json JSON, a_jsonb JSONB, a_uuid UUID, an_inet INET,
  a_char CHAR(5), a_varchar VARCHAR(50), a_text TEXT, a_bytea BYTEA, an_int_array INT[], a_text_array TEXT[]
);
CREATE TABLE shop.finish (id INT PRIMARY KEY);
INSERT INTO shop.types (id, a_numeric, a_timestamp) VALUES (1, 1.500, '2026-11-30 10:00:00.000001');
