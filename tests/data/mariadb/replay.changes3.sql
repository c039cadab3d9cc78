-- Before this part the connector is put back to where it was before part 2, as after a crash: part 2 comes again.
USE shop;
INSERT INTO orders VALUES (30, 'new'), (31, 'new');
UPDATE orders SET status = 'paid' WHERE id = 30;
INSERT INTO finish VALUES (3);
