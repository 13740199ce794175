/*
 * hooks.h - the server's hooks and the ends of transactions.
 */
#ifndef ZUNDO_HOOKS_H
#define ZUNDO_HOOKS_H

/*
 * zundo_install_hooks: installs the hooks and registers the transaction
 * callbacks. Called once, by _PG_init, when the library is preloaded.
 */
extern void zundo_install_hooks(void);

#endif
