-- What is there before the connector starts: the initial snapshot reads it.
DROP DATABASE IF EXISTS shop;
CREATE DATABASE shop CHARACTER SET utf8mb4;
USE shop;
CREATE TABLE customers (
  id INT NOT NULL PRIMARY KEY,
  name VARCHAR(64) NOT NULL,
  email VARCHAR(128)
);
CREATE TABLE orders (
  id BIGINT NOT NULL PRIMARY KEY,
  customer_id INT NOT NULL,
  status ENUM('new', 'paid', 'shipped', 'cancelled') NOT NULL DEFAULT 'new',
  amount DECIMAL(12, 2) NOT NULL,
  note TEXT,
  created_at DATETIME(6) NOT NULL,
  updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)
);
CREATE TABLE items (
  order_id BIGINT NOT NULL,
  line INT NOT NULL,
  sku VARCHAR(32) NOT NULL,
  quantity INT UNSIGNED NOT NULL,
  PRIMARY KEY (order_id, line)
);
CREATE TABLE audit (text VARCHAR(200)); -- no key
CREATE TABLE debezium_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT);
CREATE TABLE finish (id INT NOT NULL PRIMARY KEY);
INSERT INTO customers VALUES (1, 'Ada', 'ada@example.com'), (2, 'Blaise', NULL), (3, 'Čeněk Žižka 🌊', 'zizka@example.com');
INSERT INTO orders (id, customer_id, status, amount, note, created_at, updated_at) VALUES
  (100, 1, 'new', 12.50, NULL, '2026-11-29 23:59:59.123456', '2026-11-29 23:59:59.123'),
  (101, 2, 'paid', 0.01, 'größer als nichts', '2026-11-30 00:00:00', '2026-11-30 00:00:00');
INSERT INTO items VALUES (100, 1, 'TIDE-1', 3);
