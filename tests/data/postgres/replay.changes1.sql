INSERT INTO shop.orders VALUES (10, 'new'), (11, 'new');
UPDATE shop.orders SET status = 'paid' WHERE id = 10;
INSERT INTO shop.finish VALUES (1);
