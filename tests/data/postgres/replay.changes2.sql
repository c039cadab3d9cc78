-- Before this part the connector is stopped in good order.
INSERT INTO shop.orders VALUES (20, 'new'), (21, 'new');
UPDATE shop.orders SET status = 'paid' WHERE id = 20;
INSERT INTO shop.finish VALUES (2);
