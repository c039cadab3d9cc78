-- What happens while the connector streams.
-- single rows
INSERT INTO shop.orders VALUES (102, 3, 'new', 99.99, NULL, '2026-11-30 10:00:00.000001', '2026-11-30 10:00:00.000001Z');
UPDATE shop.orders SET status = 'paid' WHERE id = 102;
UPDATE shop.orders SET note = E'多字节 \\ "quoted"\n\tnew line, tab, \u0001 and 𝄞' WHERE id = 102;
-- several rows in one statement
INSERT INTO shop.orders VALUES
  (103, 1, 'new', 1.00, NULL, '2026-11-30 10:05:00'), (104, 1, 'new', 2.00, NULL, '2026-11-30 10:05:00'), (105, 2, 'new', 3.00, NULL, '2026-11-30 10:05:00');
UPDATE shop.orders SET status = 'shipped' WHERE id IN (103, 104);
-- a transaction over several tables
BEGIN;
INSERT INTO shop.orders VALUES (106, 2, 'new', 40.00, NULL, '2026-11-30 10:10:00');
INSERT INTO shop.items VALUES (106, 1, 'TIDE-2', 1), (106, 2, 'TIDE-3', 2147483647);
UPDATE shop.customers SET email = 'blaise@example.com' WHERE id = 2;
COMMIT;
-- a transaction that is rolled back: no message
BEGIN;
INSERT INTO shop.orders VALUES (999, 2, 'new', 9.99, NULL, '2026-11-30 10:11:00');
ROLLBACK;
-- the primary key changes: delete, tombstone, create, with headers that name the other key
UPDATE shop.orders SET id = 1102 WHERE id = 102;
UPDATE shop.items SET line = 7 WHERE order_id = 106 AND line = 1;
-- delete and tombstone; several in one statement
DELETE FROM shop.orders WHERE id = 101;
DELETE FROM shop.orders WHERE id IN (103, 104);
-- a table without a key: key null; without a replica identity the server lets no row be changed
INSERT INTO shop.audit VALUES ('first'), (NULL);
-- TOAST: values stored out of line and unchanged are left out of an update
INSERT INTO shop.documents VALUES (1, 'one', repeat('0123456789abcdef', 160), decode(repeat('00ff', 1280), 'hex'), ARRAY[repeat('t', 2600), NULL]);
UPDATE shop.documents SET title = 'one, again' WHERE id = 1;
UPDATE shop.documents SET body = 'short now' WHERE id = 1;
UPDATE shop.documents SET id = 2 WHERE id = 1;
DELETE FROM shop.documents WHERE id = 2;
INSERT INTO shop.full_image VALUES (1, 'one', repeat('0123456789abcdef', 160));
UPDATE shop.full_image SET title = 'one, again' WHERE id = 1;
DELETE FROM shop.full_image WHERE id = 1;
-- a column is added while rows flow
ALTER TABLE shop.orders ADD COLUMN channel TEXT;
INSERT INTO shop.orders VALUES (107, 1, 'new', 5.00, NULL, '2026-11-30 11:00:00', '2026-11-30 11:00:00Z', 'web');
UPDATE shop.orders SET channel = 'app' WHERE id = 105;
-- a logical message of the application
SELECT pg_logical_emit_message(true, 'app', 'end of batch 7');
-- an incremental snapshot, asked for by a signal
INSERT INTO shop.debezium_signal VALUES ('again-1', 'execute-snapshot', '{"data-collections": ["shop.customers"], "type": "incremental"}');
SELECT pg_sleep(4);
-- truncation, of one table and of two together
TRUNCATE shop.items;
TRUNCATE shop.audit, shop.customers;
INSERT INTO shop.finish VALUES (1);
