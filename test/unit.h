/*
 * test/unit.h - random numbers for the unit tests of the module zundo_test,
 * and errors that name seed and round, so that a case can be repeated.
 */
#ifndef ZUNDO_UNIT_H
#define ZUNDO_UNIT_H

#include "postgres.h"

#include "common/pg_prng.h"

/* The state of the running test. */
typedef struct UnitTest
{
	pg_prng_state prng;
	int			seed;
	int			round;
	int64		cases;
} UnitTest;

extern UnitTest unit;

#define FAIL(...) \
	elog(ERROR, "seed %d round %d: %s", unit.seed, unit.round, psprintf(__VA_ARGS__))
#define CHECK(cond) \
	do { \
		unit.cases++; \
		if (!(cond)) \
			FAIL("%s:%d: %s", __FILE__, __LINE__, #cond); \
	} while (0)

/* Begins a test. The seed determines all its random numbers. */
static inline void
start_test(int seed)
{
	unit.seed = seed;
	unit.round = 0;
	unit.cases = 0;
	pg_prng_seed(&unit.prng, (uint64) (uint32) seed);
}

static inline uint64
random_bits(void)
{
	return pg_prng_uint64(&unit.prng);
}

/* Returns a random number in [0, limit). */
static inline int
pick(int limit)
{
	return (int) (random_bits() % (uint64) limit);
}

static inline void
random_bytes(char *dst, int len)
{
	for (int i = 0; i < len; i++)
		dst[i] = (char) pick(256);
}

#endif
