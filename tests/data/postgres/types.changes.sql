SET TIME ZONE 'UTC';
-- everyday values
INSERT INTO shop.types VALUES (2, TRUE, -2, 4, 6, 1.5, 2.25, 1234567.891, 1234567890.0123456789, 42, 3.14159, 1234.56,
  '2026-11-30', '2026-11-30 10:11:12.123456', '2026-11-30 10:11:12.123', '2026-11-30 10:11:12.123456Z', '2026-11-30 12:11:12.123+02',
  '10:11:12.123456', '10:11:12.123', '10:11:12.123456+02', '1 year 2 months 3 days 04:05:06.000007',
  B'1', B'10000000000000000001', B'101', 'žádná', '{"a": [1, 2.5, null, "é"], "a": 2, "big": 18446744073709551615}', '{"b": 1, "a": {"n": 1e400}}',
  '123e4567-e89b-12d3-a456-426614174000', '2001:db8::1/64', 'ab', 'grün', E'Ω \\ " / \n', '\xDEADBEEF00', '{1,NULL,3}', '{"a","b,c",NULL,"\"q\""}');
-- the greatest
INSERT INTO shop.types VALUES (3, FALSE, 32767, 2147483647, 9223372036854775807, 3.4e38, 1.7e308, 9999999.999, 9999999999999999999999999999.9999999999,
  99999999999999999999, 123456789012345678901234567890.123456789012345678901234567890, 92233720368547758.07,
  '9999-12-31', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999Z', '9999-12-31 23:59:59.999Z',
  '24:00:00', '23:59:59.999', '23:59:59.999999-15:59', '178000 years',
  B'1', B'11111111111111111111', repeat('1', 70)::bit varying, 'ok', '"text"', 'null', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '255.255.255.255',
  '🌊🌊🌊🌊🌊', repeat('🌊', 50), '', '\x', '{}', '{}');
-- the least
INSERT INTO shop.types VALUES (4, FALSE, -32768, -2147483648, -9223372036854775808, -3.4e38, -1.7e308, -9999999.999, -9999999999999999999999999999.9999999999,
  -99999999999999999999, -0.000000000000000000000000000001, -92233720368547758.08,
  '0001-01-01', '0001-01-01 00:00:00.000001', '0001-01-01 00:00:00.001', '0001-01-01 00:00:00.000001Z', '0001-01-01 00:00:00.001Z',
  '00:00:00', '00:00:00.001', '00:00:00+15:59', '-178000 years',
  B'0', B'00000000000000000000', B'', 'sad', 'null', '{}', '00000000-0000-0000-0000-000000000000', '::', '', '', 'x', '\x00', '{-1}', '{""}');
-- before 1970 with a fraction: rounding goes down
INSERT INTO shop.types (id, a_date, a_timestamp, a_timestamp3, a_timestamptz) VALUES
  (5, '1969-12-31', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999Z');
-- all null
INSERT INTO shop.types (id) VALUES (6);
-- values outside any calendar or number
INSERT INTO shop.types (id, a_date, a_timestamp, a_timestamptz, a_real, a_double) VALUES (7, 'infinity', 'infinity', 'infinity', 'Infinity', 'NaN');
INSERT INTO shop.types (id, a_date, a_timestamp, a_timestamptz, a_real, a_double) VALUES (8, '-infinity', '-infinity', '-infinity', '-Infinity', '-Infinity');
INSERT INTO shop.types (id, a_date, a_timestamp, a_timestamptz) VALUES (9, '4713-01-01 BC', '4713-01-01 00:00:00 BC', '0044-03-15 12:00:00Z BC');
INSERT INTO shop.types (id, a_numeric_free) VALUES (10, 'NaN');
DELETE FROM shop.types WHERE id = 2;
INSERT INTO shop.finish VALUES (1);
