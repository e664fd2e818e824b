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
	if _, err := b.Force(ctx, name, held.Token(), "stuck"); err != nil {
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

func TestAHistoryIsReadPageByPage(t *testing.T) {
	t.Parallel()
	member := newFront(t, devcluster.Address(),
		`{"changes":[{"revision":"9","events":[]},{"revision":"8","events":[]}],"before":"8",
			"archive":{"begins":"3","begins_at":"2026-01-02T03:04:05Z","holes":[{"from":"4","next":"6"}]}}`,
		`{"changes":[{"revision":"7","events":[]},{"revision":"6","events":[]}],"before":"6",
			"archive":{"begins":"3","begins_at":"2026-01-02T03:04:05Z","holes":[{"from":"4","next":"6"},{"from":"6","next":"7"}]}}`,
		`{"changes":[{"revision":"3","events":[]}]}`)
	client := open(t, member.address(), "a")
	past, err := client.History(context.Background(), "deploy", tenure.Newest(6))
	if err != nil {
		t.Fatal(err)
	}
	var revisions []tenure.Revision
	for _, batch := range past.Batches {
		revisions = append(revisions, batch.Revision)
	}
	if !slices.Equal(revisions, []tenure.Revision{3, 6, 7, 8, 9}) || past.ArchiveBegins != 3 || past.ArchiveBeginsAt.Year() != 2026 {
		t.Fatalf("%v %+v", revisions, past)
	}
	if !slices.Equal(past.Missing, []tenure.MissingRevisions{{From: 4, Next: 6}, {From: 6, Next: 7}}) {
		t.Fatal(past.Missing)
	}
	for at, want := range [][2]string{{"", "6"}, {"8", "4"}, {"6", "2"}} {
		if asked := member.asked()[at]; asked.Get("before") != want[0] || asked.Get("limit") != want[1] {
			t.Error(at, asked)
		}
	}
}

func TestAHistoryThatDoesNotAdvanceIsRefused(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"8", "9", "10"} {
		page := func(before string) string {
			return `{"changes":[{"revision":"8","events":[]}],"before":"` + before + `"}`
		}
		member := newFront(t, devcluster.Address(), page("8"), page(next), `{"changes":[]}`)
		client := open(t, member.address(), "a")
		if _, err := client.HistoryPrefix(context.Background(), "deploy/"); reason(err) != "STRANGE_ANSWER" {
			t.Error(next, err)
		}
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
