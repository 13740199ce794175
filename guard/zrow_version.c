/*
 * guard/zrow_version.c - zundo.row_version: the transaction's id in a column.
 *
 * For applications that need of xmin what a token is not: which transaction
 * wrote a row, and an order. No locks, no buffers, no crash points.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "common/zundo.h"
#include "executor/spi.h"
#include "utils/rel.h"
#include "utils/xid8.h"

PG_FUNCTION_INFO_V1(zundo_row_version);

/*
 * Puts the id of the transaction into the column, of type xid8, bigint or xid,
 * that the argument names. Called as a trigger BEFORE INSERT OR UPDATE FOR
 * EACH ROW; returns the new row. The column shows what xmin shows on heap, and
 * keeps it as long as the row exists. Raises an error if the trigger is
 * defined otherwise, or if there is no such column.
 */
Datum
zundo_row_version(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	tuple;
	Datum		value;
	uint64		xid;
	bool		isnull = false;
	int			attno;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("zundo.row_version() must be called as a trigger")));
	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event) || !TRIGGER_FIRED_BEFORE(data->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(data->tg_event) || data->tg_trigger->tgnargs != 1)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("zundo.row_version() must be fired BEFORE INSERT OR UPDATE FOR EACH ROW, "
						"with one argument"),
				 errhint("Use CREATE TRIGGER ... BEFORE INSERT OR UPDATE ON ... FOR EACH ROW "
						 "EXECUTE FUNCTION zundo.row_version('column').")));
	desc = RelationGetDescr(data->tg_relation);
	attno = SPI_fnumber(desc, data->tg_trigger->tgargs[0]);
	if (attno <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						data->tg_trigger->tgargs[0], RelationGetRelationName(data->tg_relation))));
	xid = U64FromFullTransactionId(GetTopFullTransactionId());
	switch (SPI_gettypeid(desc, attno))
	{
		case XID8OID:
			value = FullTransactionIdGetDatum(FullTransactionIdFromU64(xid));
			break;
		case INT8OID:
			value = Int64GetDatum((int64) xid);
			break;
		case XIDOID:
			value = TransactionIdGetDatum((TransactionId) xid);
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of relation \"%s\" must be of type xid8, bigint or xid",
							data->tg_trigger->tgargs[0],
							RelationGetRelationName(data->tg_relation))));
	}
	tuple = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, desc, 1, &attno, &value, &isnull));
}
