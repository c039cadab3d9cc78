-- A router puts every message of the connector into one topic: changes, schema changes, transactions, heartbeats.
USE shop;
INSERT INTO orders VALUES (3, 'new', 3.00);
UPDATE orders SET status = 'paid' WHERE id = 1;
DELETE FROM orders WHERE id = 2;
ALTER TABLE orders ADD COLUMN channel VARCHAR(16) NULL;
INSERT INTO orders VALUES (4, 'new', 4.00, 'web');
DO SLEEP(3);
INSERT INTO orders VALUES (5, 'new', 5.00, NULL);
INSERT INTO finish VALUES (1);
