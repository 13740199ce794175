/*
 * convert/convert.h - converting a table online: see README.md.
 */
#ifndef ZUNDO_CONVERT_H
#define ZUNDO_CONVERT_H

#include "catalog/objectaccess.h"
#include "executor/execdesc.h"
#include "nodes/nodes.h"

extern Size zconvert_shmem_size(void);
extern void zconvert_shmem_startup(void);

/*
 * zconvert_check_query: raises ERRCODE_T_R_SERIALIZATION_FAILURE if the started
 * query has an MVCC snapshot that does not see the conversion of one of its
 * tables (CONVERT-3). Its tables are locked.
 *
 * zconvert_check_copy: does so for COPY ... TO, which the executor does not
 * see, and for the active snapshot. Locks the table, as the command does next.
 */
extern void zconvert_check_query(QueryDesc *query, int eflags);
extern void zconvert_check_copy(const Node *command);

/*
 * zconvert_check_command: raises an error if the command would make
 * zundo.converted something else than what queries look at. Locks nothing.
 */
extern void zconvert_check_command(Node *command);

/*
 * zconvert_on_access: takes an event of the object access hook during an ALTER
 * TABLE. Notes a table that this has rewritten, to or from zheap, as converted
 * (CONVERT-3).
 */
extern void zconvert_on_access(ObjectAccessType access, Oid class, Oid object, int part);

#endif
