/*
 * hooks.h - the server's hooks and the ends of transactions.
 */
#ifndef ZUNDO_HOOKS_H
#define ZUNDO_HOOKS_H

/* zundo_install_hooks: once, when the library is preloaded. */
extern void zundo_install_hooks(void);

#endif
