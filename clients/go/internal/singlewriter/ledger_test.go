// Tests the guide of the single writer against a real member and a PostgreSQL with the fence of the repository.

package singlewriter

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/lib/pq"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

func TestMain(m *testing.M) { devcluster.Main(m) }

// state returns the SQLSTATE of an error of the database.
func state(err error) string {
	var failed *pq.Error
	if errors.As(err, &failed) {
		return string(failed.Code)
	}
	return ""
}

func TestTheNewestHolderWritesAndAnOlderOneIsRefusedByTheDatabase(t *testing.T) {
	db := startPostgres(t)
	ctx := context.Background()
	client, err := tenure.Open(ctx, tenure.Config{Addresses: []string{devcluster.Address()}, Name: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(ctx)
	fence, err := os.ReadFile("../../../../crates/fence/src/postgres.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		string(fence),
		`create table ledger (id bigint primary key, paid boolean not null default false)`,
		`insert into ledger (id) values (7), (8)`,
		`select tenure_fence.protect('ledger', 'ledger')`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	former, err := client.Lock(ctx, "ledger")
	if err != nil {
		t.Fatal(err)
	}
	early := former.Token()
	if err := former.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := Pay(ctx, client, db, 7); err != nil {
		t.Fatal(err)
	}
	paid := func(entry int64) (is bool) {
		t.Helper()
		if err := db.QueryRow(`select paid from ledger where id = $1`, entry).Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is
	}
	if !paid(7) {
		t.Fatal("the newest holder has not written")
	}
	const book = `update ledger set paid = true where id = $1`
	// The former holder comes late.
	if err := write(ctx, db, early, book, 8); state(err) != "TF412" {
		t.Fatal(err)
	}
	// A program that knows nothing of the fence cannot write at all.
	if _, err := db.Exec(book, 8); state(err) != "TF428" {
		t.Fatal(err)
	}

	// With the hook, the fence refuses the former holder from the grant on, before the new one has written.
	held, err := client.Lock(ctx, "ledger")
	if err != nil {
		t.Fatal(err)
	}
	middle := held.Token()
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	raised, err := Raised(ctx, client, db)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(ctx, db, middle, book, 8); state(err) != "TF412" || paid(8) {
		t.Fatal(err)
	}
	if err := write(raised.Context(), db, raised.Token(), book, 8); err != nil || !paid(8) {
		t.Fatal(err)
	}
	if err := raised.Release(ctx); err != nil {
		t.Fatal(err)
	}
	// A fence that has seen a larger token refuses, and the lock is given back.
	if _, err := db.Exec(`select tenure_fence.raise_floor('ledger', $1)`, int64(raised.Token())+1_000); err != nil {
		t.Fatal(err)
	}
	if _, err := Raised(ctx, client, db); state(err) != "TF412" {
		t.Fatal(err)
	}
	if again, err := client.Lock(ctx, "ledger"); err != nil || again.Release(ctx) != nil {
		t.Fatal(err)
	}
}

func TestTheGuideHasTheCodeThatIsTestedHere(t *testing.T) {
	guide, err := os.ReadFile("../../docs/single-writer.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("ledger.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(guide), "```go\n")
	if len(parts) != 3 {
		t.Fatalf("the guide has %d examples", len(parts)-1)
	}
	for _, part := range parts[1:] {
		block, _, _ := strings.Cut(part, "```")
		if !strings.Contains(string(code), block) {
			t.Errorf("ledger.go does not have this example of the guide:\n%s", block)
		}
	}
}
