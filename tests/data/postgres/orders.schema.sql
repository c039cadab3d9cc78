-- What is there before the connector starts: the initial snapshot reads it.
CREATE SCHEMA shop;
CREATE TYPE shop.order_status AS ENUM ('new', 'paid', 'shipped', 'cancelled');
CREATE TABLE shop.customers (id INT PRIMARY KEY, name TEXT NOT NULL, email TEXT);
CREATE TABLE shop.orders (
  id BIGINT PRIMARY KEY,
  customer_id INT NOT NULL,
  status shop.order_status NOT NULL DEFAULT 'new',
  amount NUMERIC(12, 2) NOT NULL,
  note TEXT,
  created_at TIMESTAMP NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE TABLE shop.items (order_id BIGINT NOT NULL, line INT NOT NULL, sku TEXT NOT NULL, quantity INT NOT NULL, PRIMARY KEY (order_id, line));
CREATE TABLE shop.audit (text TEXT); -- no key
CREATE TABLE shop.documents (id INT PRIMARY KEY, title TEXT, body TEXT, attachment BYTEA, tags TEXT[]);
ALTER TABLE shop.documents ALTER body SET STORAGE EXTERNAL, ALTER attachment SET STORAGE EXTERNAL, ALTER tags SET STORAGE EXTERNAL;
CREATE TABLE shop.full_image (id INT PRIMARY KEY, title TEXT, body TEXT);
ALTER TABLE shop.full_image REPLICA IDENTITY FULL, ALTER body SET STORAGE EXTERNAL;
CREATE TABLE shop.debezium_signal (id TEXT PRIMARY KEY, type TEXT NOT NULL, data TEXT);
CREATE TABLE shop.finish (id INT PRIMARY KEY);
INSERT INTO shop.customers VALUES (1, 'Ada', 'ada@example.com'), (2, 'Blaise', NULL), (3, 'Čeněk Žižka 🌊', 'zizka@example.com');
INSERT INTO shop.orders VALUES
  (100, 1, 'new', 12.50, NULL, '2026-11-29 23:59:59.123456', '2026-11-29 23:59:59.123Z'),
  (101, 2, 'paid', 0.01, 'größer als nichts', '2026-11-30 00:00:00', '2026-11-30 02:00:00+02');
INSERT INTO shop.items VALUES (100, 1, 'TIDE-1', 3);
