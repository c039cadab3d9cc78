-- Before this part the connector is stopped in good order.
USE shop;
INSERT INTO orders VALUES (20, 'new'), (21, 'new');
UPDATE orders SET status = 'paid' WHERE id = 20;
INSERT INTO finish VALUES (2);
