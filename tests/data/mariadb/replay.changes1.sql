USE shop;
INSERT INTO orders VALUES (10, 'new'), (11, 'new');
UPDATE orders SET status = 'paid' WHERE id = 10;
INSERT INTO finish VALUES (1);
