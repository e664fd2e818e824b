// Shows how each part of the package is used. The functions compile; those of the README also run.

package tenure_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

var (
	ctx    = context.Background()
	client *tenure.Client
	guard  *tenure.Guard
	lease  *tenure.Lease
)

func work(context.Context, tenure.Token) error { return nil }

func ExampleOpen() {
	client, err := tenure.Open(ctx, tenure.Config{
		Addresses: []string{"https://a.example:7450", "https://b.example:7450"},
		CAFile:    "/etc/tenure/ca.pem",
		Name:      "ci-7/4121",
		Logger:    slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
}

func ExampleFromEnv() {
	client, err := tenure.FromEnv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
}

func ExampleClient_Lock() {
	guard, err := client.Lock(ctx, "deploy", tenure.Wait(time.Minute))
	if errors.Is(err, tenure.ErrWaitTimeout) {
		fmt.Println("busy for more than a minute")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release(ctx)
	fmt.Println(work(guard.Context(), guard.Token()))
}

func ExampleClient_TryLock() {
	guard, ok, err := client.TryLock(ctx, "report")
	if err != nil || !ok {
		return // another client has it, or no member answered
	}
	defer guard.Release(ctx)
}

func ExampleClient_LockAll() {
	both, err := client.LockAll(ctx, []string{"accounts/7", "accounts/9"})
	if err != nil {
		log.Fatal(err)
	}
	defer both.Release(ctx)
}

func ExampleClient_Do() {
	err := client.Do(ctx, "deploy", func(ctx context.Context, guard *tenure.Guard) error {
		return work(ctx, guard.Token())
	})
	var lost *tenure.LostError
	if errors.As(err, &lost) {
		fmt.Println("stopped:", lost.Cause, lost.By, lost.Reason)
	}
}

func ExampleClient_Locker() {
	var locker sync.Locker = client.Locker("cache")
	locker.Lock()
	defer locker.Unlock()
}

func ExampleClient_Lease() {
	lease, err := client.Lease(ctx, 30*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	first, err := lease.Lock(ctx, "a")
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release(ctx)
}

func ExampleGuard_Check() {
	for row := range 100 {
		if err := guard.Check(); err != nil {
			log.Fatal(err) // compares the clock, sends nothing
		}
		fmt.Println("writing", row, "under token", guard.Token())
	}
}

func ExampleGuard_Context() {
	select {
	case <-guard.Context().Done():
		fmt.Println(context.Cause(guard.Context())) // a *tenure.LostError
	case <-time.After(time.Second):
		fmt.Println("the work is done")
	}
}

func ExampleGuard_Standings() {
	for standing := range guard.Standings() {
		fmt.Println(standing)
		if standing == tenure.Lost {
			break
		}
	}
}

func ExampleGuard_Reenter() {
	again, err := guard.Reenter()
	if err != nil {
		log.Fatal(err)
	}
	defer again.Release(ctx) // the lock stays held until the last of its guards is released
}

// The token is the first statement of the transaction, so that token and data change together.
func ExampleGuard_Token() {
	db, err := sql.Open("pgx", "postgres://localhost/ledger")
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(guard.Context(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`select tenure_fence.pass('ledger', $1)`, int64(guard.Token())); err != nil {
		log.Fatal(err) // a newer holder has written
	}
	if _, err := tx.Exec(`update ledger set paid = true where id = $1`, 7); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

func ExampleFence() {
	var db *sql.DB
	_, err := client.Lock(ctx, "ledger", tenure.Fence(func(ctx context.Context, lock tenure.GrantedLock) error {
		_, err := db.ExecContext(ctx, `select tenure_fence.raise_floor($1, $2)`, lock.Name, int64(lock.Token))
		return err
	}))
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleElection_Lead() {
	value := []byte("10.0.0.5:9000")
	err := client.Election("billing").Lead(ctx, value, func(ctx context.Context, lead *tenure.Leadership) error {
		if err := lead.Proclaim(ctx, []byte("10.0.0.5:9001")); err != nil {
			return err
		}
		return work(ctx, lead.Token())
	})
	fmt.Println(err)
}

func ExampleElection_Campaign() {
	lead, err := client.Election("billing").Campaign(ctx, []byte("10.0.0.5:9000"))
	if err != nil {
		log.Fatal(err)
	}
	defer lead.Resign(ctx)
}

func ExampleElection_Observe() {
	for leader, err := range client.Election("billing").Observe(ctx) {
		switch {
		case err != nil:
			fmt.Println(err)
		case leader == nil:
			fmt.Println("no leader")
		default:
			fmt.Println("ask", string(leader.Value))
		}
	}
}

func ExampleClient_Put() {
	_, err := client.Put(ctx, "ledger", []byte("paid"), tenure.GuardedBy(guard))
	if errors.Is(err, &tenure.RefusedError{Reason: "GUARD_FAILED"}) {
		fmt.Println("the lock is not held any more")
	}
	// A write whose outcome stayed unknown is repeated under its id, and happens once.
	var unknown *tenure.UnknownError
	if errors.As(err, &unknown) {
		_, err = client.Put(ctx, "ledger", []byte("paid"), tenure.GuardedBy(guard), tenure.RequestID(unknown.RequestID))
		fmt.Println(err)
	}
}

func ExampleClient_Get() {
	config, found, err := client.Get(ctx, "config")
	if err == nil && found {
		_, err = client.Put(ctx, "config", []byte("v2"), tenure.IfModified(config.Modified))
	}
	fmt.Println(err)
}

func ExampleBoundTo() {
	_, err := client.Put(ctx, "workers/7", []byte("10.0.0.7"), tenure.BoundTo(lease)) // gone when the lease ends
	fmt.Println(err)
}

func ExampleClient_WatchPrefix() {
	watch, err := client.WatchPrefix(ctx, "jobs/", tenure.FromRevision(8841))
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range watch.All() {
		var compacted *tenure.CompactedError
		if errors.As(err, &compacted) {
			fmt.Println("read everything anew, then watch from", compacted.Floor)
		}
		for _, event := range batch.Events {
			fmt.Println(batch.Revision, event.Cause, event.Lock, event.Key)
		}
	}
}

func ExampleClient_Force() {
	info, err := client.Show(ctx, "deploy")
	if err != nil || info == nil {
		return
	}
	for _, holder := range info.Holders {
		fmt.Println(client.Force(ctx, "deploy", holder.Token, "stuck for an hour"))
	}
}

func ExampleClient_Explain() {
	explained, err := client.Explain(ctx, "deploy")
	if err != nil {
		log.Fatal(err)
	}
	for _, waiter := range explained.Waiters {
		fmt.Println(waiter.Client, "has waited", waiter.Waited)
	}
	if len(explained.Waiters) > 0 {
		_, err = guard.HandOn(ctx, explained.Waiters[0].Lease)
		fmt.Println(err)
	}
}

func ExampleClient_Revoke() {
	err := client.Revoke(ctx, lease.ID(), "the machine is gone", tenure.Now())
	fmt.Println(err)
}

func ExampleClient_History() {
	past, err := client.History(ctx, "deploy", tenure.Since(time.Now().Add(-2*time.Hour)), tenure.OnlyLosses())
	if err != nil {
		log.Fatal(err)
	}
	for _, batch := range past.Batches {
		for _, event := range batch.Events {
			fmt.Println(event.At, event.Client, event.Cause, event.By, event.Reason)
		}
	}
}

func ExampleRetryable() {
	_, err := client.Lock(ctx, "deploy", tenure.NoWait())
	if tenure.Retryable(err) {
		fmt.Println("nothing happened; try later")
	}
	if tenure.EffectOf(err) == tenure.EffectUnknown {
		fmt.Println("it may have happened")
	}
}
