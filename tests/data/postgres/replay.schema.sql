CREATE SCHEMA shop;
CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, status TEXT NOT NULL);
CREATE TABLE shop.finish (id INT PRIMARY KEY);
INSERT INTO shop.orders VALUES (1, 'new');
