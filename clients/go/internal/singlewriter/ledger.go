// Package singlewriter has the code of the guide docs/single-writer.md, for its tests against a PostgreSQL. It is a module
// of its own, so that users of the client do not get a database driver.
package singlewriter

import (
	"context"
	"database/sql"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

// Pay books an entry. Only the newest holder of the lock can: token and data are committed together.
func Pay(ctx context.Context, client *tenure.Client, db *sql.DB, entry int64) error {
	return client.Do(ctx, "ledger", func(ctx context.Context, guard *tenure.Guard) error {
		return write(ctx, db, guard.Token(), `update ledger set paid = true where id = $1`, entry)
	})
}

// write runs a statement in a transaction that begins with the token.
func write(ctx context.Context, db *sql.DB, token tenure.Token, statement string, args ...any) error {
	tx, err := db.BeginTx(ctx, nil) // rolled back if the lock is lost
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `select tenure_fence.pass('ledger', $1)`, int64(token)); err != nil {
		return err // SQLSTATE TF412: a newer holder has written
	}
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return err
	}
	return tx.Commit() // token and data, together
}

// Raised acquires the lock and raises the fence before it returns the guard: from then on nothing older is accepted.
func Raised(ctx context.Context, client *tenure.Client, db *sql.DB) (*tenure.Guard, error) {
	return client.Lock(ctx, "ledger", tenure.Fence(func(ctx context.Context, lock tenure.GrantedLock) error {
		_, err := db.ExecContext(ctx, `select tenure_fence.raise_floor($1, $2)`, lock.Name, int64(lock.Token))
		return err
	}))
}
