// Keeps what commands have made, by the names that the runner gave.

package main

import (
	"fmt"
	"sync"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

// A named is a set of values of one kind.
type named[T any] struct {
	kind string
	mu   sync.Mutex
	all  map[string]T
}

func newNamed[T any](kind string) *named[T] { return &named[T]{kind: kind, all: map[string]T{}} }

func (n *named[T]) put(name string, value T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[name] = value
}

func (n *named[T]) get(name string) (T, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	value, ok := n.all[name]
	if !ok {
		return value, &tenure.InvalidError{Reason: "INVALID_FIELD", Message: fmt.Sprintf("no %s has the name %q", n.kind, name)}
	}
	return value, nil
}

type objects struct {
	clients *named[*tenure.Client]
	guards  *named[*tenure.Guard]
	leases  *named[*tenure.Lease]
	leaders *named[*tenure.Leadership]
}

func newObjects() objects {
	return objects{
		clients: newNamed[*tenure.Client]("client"), guards: newNamed[*tenure.Guard]("guard"),
		leases: newNamed[*tenure.Lease]("lease"), leaders: newNamed[*tenure.Leadership]("leader"),
	}
}
