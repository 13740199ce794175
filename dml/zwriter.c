/*
 * dml/zwriter.c - what every change of rows begins with: who writes, into what.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_publication.h"
#include "dml/zdml_internal.h"
#include "rollback/zrollback.h"
#include "undo/undo_temp.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#define MAX_KEPT_SCRATCH (128 * 1024)

/* Refuse what would lose changes or history: tables that logical decoding is to read. */
static void
refuse_decoded_table(Relation rel)
{
	PublicationDesc desc;

	if (RelationIsUsedAsCatalogTable(rel))
		zundo_not_supported("a zheap table cannot have user_catalog_table set",
							"Its old versions are kept for queries only, not for logical decoding.");
	/* What ALTER TABLE and REFRESH fill, to swap it in, is never published, not even FOR ALL TABLES. */
	if (!RelationIsLogicallyLogged(rel) || OidIsValid(rel->rd_rel->relrewrite))
		return;
	RelationBuildPublicationDesc(rel, &desc);
	if (desc.pubactions.pubinsert || desc.pubactions.pubupdate || desc.pubactions.pubdelete)
		zundo_not_supported("changes of a zheap table cannot be published",
							"Logical decoding of zheap tables is not implemented.");
}

void
zwriter_open(ZWriter *writer, Relation rel, CommandId cid)
{
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions")));
	if (unlikely(XLogLogicalInfoActive() || rel->rd_options != NULL))
		refuse_decoded_table(rel);
	zu_attach_database();
	writer->rel = rel;
	writer->xid = InvalidZXid;
	writer->topxid = InvalidZXid;
	writer->cid = cid;
	writer->logged = RelationNeedsWAL(rel);
	writer->temp = (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP);
	if (unlikely(writer->temp))
		zrollback_temp();
}

void
zwriter_start(ZWriter *writer)
{
	writer->xid = zxid_from_full(GetCurrentFullTransactionId());
	writer->topxid = zxid_from_full(GetTopFullTransactionId());
	zwriter_reserve(writer);
}

void
zwriter_begin(ZWriter *writer, Relation rel, CommandId cid)
{
	zwriter_open(writer, rel, cid);
	zwriter_start(writer);
}

void
zwriter_reserve(const ZWriter *writer)
{
	if (likely(!writer->temp))
		zu_reserve(ZU_MAX_RESERVE);
	else
		zu_temp_reserve(writer->rel, ZU_MAX_RESERVE);
}

/* What row changes allocate in; it stays with the process while it is small. */
static MemoryContext scratch = NULL;

MemoryContext
zdml_scratch(void)
{
	if (scratch == NULL)
		scratch = AllocSetContextCreate(TopMemoryContext, "zheap row changes", ALLOCSET_DEFAULT_SIZES);
	else
		MemoryContextReset(scratch);
	return scratch;
}

static void
trim_scratch(void)
{
	if (scratch != NULL && MemoryContextMemAllocated(scratch, false) > MAX_KEPT_SCRATCH)
		MemoryContextReset(scratch);
}

void
zdml_leave(MemoryContext caller)
{
	MemoryContextSwitchTo(caller);
	trim_scratch();
}

void
zdml_at_xact_end(void)
{
	trim_scratch();				/* an error may have left it */
}

void
zwriter_record(const ZWriter *writer, ZuRecord *rec, ZuRecordType type, BlockNumber block,
			   OffsetNumber off, UndoPtr prev)
{
	memset(rec, 0, sizeof(*rec));
	rec->type = type;
	if (writer->temp)
		rec->xflags = ZUX_TEMP;
	else if (unlikely(!writer->logged) && writer->rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		rec->xflags = ZUX_UNLOGGED;
	rec->xid = writer->xid;
	rec->topxid = writer->topxid;
	rec->reloid = RelationGetRelid(writer->rel);
	rec->relnumber = writer->rel->rd_locator.relNumber;
	rec->block = block;
	rec->offset = off;
	rec->cid = writer->cid;
	rec->prev = prev;
	rec->nrows = 1;
}
