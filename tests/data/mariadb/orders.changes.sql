-- What happens while the connector streams.
USE shop;
-- single rows
INSERT INTO orders (id, customer_id, amount, created_at) VALUES (102, 3, 99.99, '2026-11-30 10:00:00.000001');
UPDATE orders SET status = 'paid' WHERE id = 102;
UPDATE orders SET note = '多字节 \\ "quoted"\n\tnew line, tab, \u0001 and 𝄞' WHERE id = 102;
-- several rows in one statement: one position, rows 0, 1, 2
INSERT INTO orders (id, customer_id, amount, created_at) VALUES
  (103, 1, 1.00, '2026-11-30 10:05:00'), (104, 1, 2.00, '2026-11-30 10:05:00'), (105, 2, 3.00, '2026-11-30 10:05:00');
UPDATE orders SET status = 'shipped' WHERE id IN (103, 104);
-- a transaction over several tables
START TRANSACTION;
INSERT INTO orders (id, customer_id, amount, created_at) VALUES (106, 2, 40.00, '2026-11-30 10:10:00');
INSERT INTO items VALUES (106, 1, 'TIDE-2', 1), (106, 2, 'TIDE-3', 4294967295);
UPDATE customers SET email = 'blaise@example.com' WHERE id = 2;
COMMIT;
-- a transaction that is rolled back: no message
START TRANSACTION;
INSERT INTO orders (id, customer_id, amount, created_at) VALUES (999, 2, 9.99, '2026-11-30 10:11:00');
ROLLBACK;
-- the primary key changes: delete, tombstone, create, with headers that name the other key
UPDATE orders SET id = 1102 WHERE id = 102;
UPDATE items SET line = 7 WHERE order_id = 106 AND line = 1;
-- delete and tombstone; several in one statement
DELETE FROM orders WHERE id = 101;
DELETE FROM orders WHERE id IN (103, 104);
-- a table without a key: key null
INSERT INTO audit VALUES ('first'), (NULL);
DELETE FROM audit WHERE text = 'first';
-- a column is added while rows flow
ALTER TABLE orders ADD COLUMN channel VARCHAR(16) NULL;
INSERT INTO orders (id, customer_id, amount, created_at, channel) VALUES (107, 1, 5.00, '2026-11-30 11:00:00', 'web');
UPDATE orders SET channel = 'app' WHERE id = 105;
-- REPLACE is a delete and an insert of one key, or an update, as the server chooses
REPLACE INTO customers VALUES (1, 'Ada L.', NULL);
-- an incremental snapshot, asked for by a signal
INSERT INTO debezium_signal VALUES ('again-1', 'execute-snapshot', '{"data-collections": ["shop.customers"], "type": "incremental"}');
DO SLEEP(4);
-- in MySQL's family a truncation is no row change
TRUNCATE TABLE items;
INSERT INTO finish VALUES (1);
