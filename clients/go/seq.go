// Numbers the requests of a lease, so that the cluster recognises one that is sent again.

package tenure

import (
	"context"
	"slices"
	"sync"
)

// seqsMax is the maximum number of unanswered requests of one lease: somewhat less than the cluster allows.
const seqsMax = 200

// A seqs numbers the requests of one lease, and knows which of them are not finally answered.
type seqs struct {
	mu     sync.Mutex
	newest uint64
	open   []uint64 // sorted, because numbers are assigned in order
	room   chan struct{}
}

// A seq is a request's number. The request counts as unanswered until done is called.
type seq struct {
	of     *seqs
	number uint64
}

// next returns the next number, once the window has room.
func (s *seqs) next(ctx context.Context) (*seq, error) {
	select {
	case s.room <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest++
	s.open = append(s.open, s.newest)
	return &seq{of: s, number: s.newest}, nil
}

// numbers returns the number, and the one up to which every request is answered or given up.
func (s *seq) numbers() (seq, done uint64) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	done = s.of.newest
	if len(s.of.open) > 0 {
		done = s.of.open[0] - 1
	}
	return s.number, done
}

// done records that the request is answered or abandoned; every later request reports this to the cluster.
func (s *seq) done() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if at, found := slices.BinarySearch(s.of.open, s.number); found {
		s.of.open = slices.Delete(s.of.open, at, at+1)
		<-s.of.room
	}
}

// numbered sends a command under the lease, exactly once.
func (h *heldLease) numbered(ctx context.Context, request wireRequest) (*wireAnswer, error) {
	number, err := h.seqs.next(ctx)
	if err != nil {
		return nil, cancelled(ctx, EffectNone)
	}
	defer number.done()
	return h.client.call(ctx, request, identity{seq: number})
}
