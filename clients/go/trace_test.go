// Tests that the span of the caller goes with its requests, and with no others.

package tenure_test

import (
	"context"
	"slices"
	"testing"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

const (
	span   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	others = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
)

type spanKey struct{}

// spanOf is a function for Config.Traceparent that has a span for every context.
func spanOf(ctx context.Context) string {
	if of, has := ctx.Value(spanKey{}).(string); has {
		return of
	}
	return others
}

func TestRequestsCarryTheSpanOfTheirContextAndRenewalsNone(t *testing.T) {
	t.Parallel()
	member := newFront(t, devcluster.Address())
	client := openWith(t, context.Background(), tenure.Config{
		Addresses: []string{member.address()}, Name: "ana", TTL: ttl, Traceparent: spanOf,
	})
	ctx := context.WithValue(context.Background(), spanKey{}, span)
	name := deploy(t)
	guard := must(t)(client.Lock(ctx, name))
	if err := guard.Update(ctx, []byte("v2")); err != nil {
		t.Fatal(err)
	}
	lease, err := client.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	under := must(t)(lease.Lock(ctx, name+"/under"))
	if err := guard.Update(context.Background(), []byte("v3")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leases are renewed", func() bool { return len(member.sent("renew")) > 0 })
	if err := under.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := guard.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string][]string{
		"acquire": {span, span}, "update": {span, others}, "grant_lease": {span}, "release": {span}, "revoke": {span},
	} {
		if spans := member.spans(command); !slices.Equal(spans, want) {
			t.Errorf("%s: %q", command, spans)
		}
	}
	for _, of := range member.spans("renew") {
		if of != "" {
			t.Errorf("a renewal has the span %q", of)
		}
	}
}
