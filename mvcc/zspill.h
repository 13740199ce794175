/*
 * mvcc/zspill.h - bytes of this backend's transaction, one after the other: up
 * to work_mem in memory, the others in a temporary file.
 */
#ifndef ZUNDO_ZSPILL_H
#define ZUNDO_ZSPILL_H

/*
 * zspill_write: puts size bytes at place, which is 0 or the end of what was
 * written before; what was written behind place is lost. Returns the new end.
 * After an error the bytes before place are as they were, and the next call may
 * have the same place. Raises the errors of a temporary file, among them that
 * temp_file_limit is exceeded.
 */
extern uint64 zspill_write(uint64 place, const void *from, Size size);

/*
 * zspill_read: copies the size bytes that were written at place. Raises the
 * errors of a temporary file, and ERRCODE_DATA_CORRUPTED if it is too short.
 */
extern void zspill_read(uint64 place, void *to, Size size);

/*
 * zspill_cut: gives up what was written behind place, with the file and the
 * memory if they are not needed for the rest. Raises no error.
 * zspill_at_xact_end: gives up everything.
 */
extern void zspill_cut(uint64 place);
extern void zspill_at_xact_end(void);

#endif
