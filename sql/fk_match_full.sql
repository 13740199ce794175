-- A row that a MATCH FULL foreign key, not validated, does not allow: any update of it must fail, as on heap.
CREATE TABLE p (a int, b int, PRIMARY KEY (a, b)) USING zheap;
CREATE TABLE z (id int PRIMARY KEY, a int, b int, v int) USING zheap;
CREATE TABLE h (id int PRIMARY KEY, a int, b int, v int) USING heap;
INSERT INTO p VALUES (1, 1);
INSERT INTO z VALUES (1, 1, NULL, 0), (2, NULL, NULL, 0), (3, 1, 1, 0), (4, 2, 2, 0);
INSERT INTO h SELECT * FROM z;
ALTER TABLE z ADD CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES p MATCH FULL DEFERRABLE NOT VALID;
ALTER TABLE h ADD CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES p MATCH FULL DEFERRABLE NOT VALID;
UPDATE h SET v = 1 WHERE id = 1;
UPDATE z SET v = 1 WHERE id = 1;
UPDATE z SET v = 1 WHERE id > 1;
BEGIN;
SET CONSTRAINTS fk DEFERRED;
UPDATE z SET v = 2 WHERE id = 1;
UPDATE z SET b = 1 WHERE id = 1;
COMMIT;
SELECT * FROM z ORDER BY id;
SELECT * FROM zundo.check('z');
