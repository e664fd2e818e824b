// Tests searches of the past against a real member, which keeps an archive.

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

func TestTheHistoryIsSearchedByTimeClientAndLoss(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	a, b := open(t, address, "ci-7"), open(t, address, "ops")
	ctx, began := context.Background(), time.Now()
	// No earlier run of the test has used it.
	prefix := fmt.Sprintf("%s/%d/", t.Name(), began.UnixNano())
	name := prefix + "deploy"
	release(t, lock(t, a, name))
	held := lock(t, a, name)
	if err := b.Force(ctx, name, held.Token(), "stuck"); err != nil {
		t.Fatal(err)
	}
	_ = held.Lost(ctx)
	_ = held.Release(ctx)
	release(t, lock(t, b, name))

	history := func(options ...tenure.HistoryOption) (causes []string) {
		t.Helper()
		past, err := b.History(ctx, name, options...)
		if err != nil {
			t.Fatal(err)
		}
		for at, batch := range past.Batches {
			if at > 0 && batch.Revision <= past.Batches[at-1].Revision {
				t.Fatal("the oldest is first")
			}
			for _, event := range batch.Events {
				// Whether the last request has to queue depends on when the release before it arrives.
				if event.Cause != "queued" {
					causes = append(causes, event.Cause)
				}
			}
		}
		return causes
	}
	whole := history()
	if whole[0] != "granted" || !slices.Contains(whole, "forced") || !slices.Contains(whole, "released") {
		t.Fatal(whole)
	}
	if lost := history(tenure.OnlyLosses()); !slices.Equal(lost, []string{"forced"}) {
		t.Fatal(lost)
	}
	if ours := history(tenure.OfClient("ops")); !slices.Equal(ours, []string{"granted", "released"}) {
		t.Fatal(ours)
	}
	if newest := history(tenure.Newest(1)); !slices.Equal(newest, whole[len(whole)-1:]) {
		t.Fatal(newest)
	}
	hour := time.Hour
	if within := history(tenure.Since(began.Add(-hour)), tenure.Until(began.Add(hour))); !slices.Equal(within, whole) {
		t.Fatal(within)
	}
	if none := history(tenure.Until(began.Add(-hour))); none != nil {
		t.Fatal(none)
	}
	past, err := b.HistoryPrefix(ctx, prefix, tenure.OnlyLosses())
	if err != nil || len(past.Batches) != 1 || past.Batches[0].Events[0].By != "ops" || past.Batches[0].Events[0].Reason != "stuck" {
		t.Fatal(past, err)
	}
}

func TestBadSearchesAreRefusedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	client := open(t, devcluster.Address(), "a")
	for _, option := range []tenure.HistoryOption{tenure.Newest(0), tenure.Since(time.Unix(-1, 0))} {
		_, err := client.History(context.Background(), "deploy", option)
		if !errors.As(err, new(*tenure.InvalidError)) || reason(err) != "INVALID_FIELD" {
			t.Fatal(err)
		}
	}
	if _, err := client.History(context.Background(), ""); reason(err) != "INVALID_NAME" {
		t.Fatal(err)
	}
}
