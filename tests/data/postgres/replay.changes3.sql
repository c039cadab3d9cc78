-- Before this part the connector is put back to where it was before part 2, as after a crash: part 2 comes again.
INSERT INTO shop.orders VALUES (30, 'new'), (31, 'new');
UPDATE shop.orders SET status = 'paid' WHERE id = 30;
INSERT INTO shop.finish VALUES (3);
