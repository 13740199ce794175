-- Run by the image when it makes a cluster: new databases have the extension, too.
\connect template1
CREATE EXTENSION zundo;
\connect postgres
CREATE EXTENSION zundo;
