// Defines the messages of the WebSocket session in JSON, as far as the client uses them.

package tenure

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// A decimal is a number that does not fit a double: a decimal string in JSON.
type decimal uint64

func (d decimal) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatUint(uint64(d), 10)), nil
}

func (d *decimal) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return fmt.Errorf("a decimal string is expected: %w", err)
	}
	number, err := strconv.ParseUint(word, 10, 64)
	*d = decimal(number)
	return err
}

type clientMessage struct {
	Hello    *wireHello    `json:"hello,omitempty"`
	Resume   *wireLeases   `json:"resume,omitempty"`
	Requests []wireRequest `json:"requests,omitempty"`
}

type wireHello struct {
	Client      string  `json:"client,omitempty"`
	ClusterID   decimal `json:"cluster_id,omitempty"`
	Epoch       uint32  `json:"epoch,omitempty"`
	Incarnation decimal `json:"incarnation,omitempty"`
}

type wireLeases struct {
	Leases []decimal `json:"leases"`
}

// A wireRequest is an id, its identity for repetitions, and exactly one command.
type wireRequest struct {
	ID             uint64 `json:"id"`
	Seq            uint64 `json:"seq,omitempty"`
	Done           uint64 `json:"done,omitempty"`
	DeadlineMs     uint32 `json:"deadline_ms,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Traceparent    string `json:"traceparent,omitempty"`

	Acquire    *wireAcquire    `json:"acquire,omitempty"`
	Release    *wireHold       `json:"release,omitempty"`
	Renew      *wireLeases     `json:"renew,omitempty"`
	GrantLease *wireGrantLease `json:"grant_lease,omitempty"`
	Revoke     *wireRevoke     `json:"revoke,omitempty"`
	Leave      *wireWhich      `json:"leave,omitempty"`
	Stopped    *wireStopped    `json:"stopped,omitempty"`
	Downgrade  *wireHold       `json:"downgrade,omitempty"`
	Update     *wireUpdate     `json:"update,omitempty"`
	Force      *wireForce      `json:"force,omitempty"`
	Put        *wirePut        `json:"put,omitempty"`
	Delete     *wireDelete     `json:"delete,omitempty"`
	GetLease   *wireTarget     `json:"get_lease,omitempty"`
	GetLock    *wireTarget     `json:"get_lock,omitempty"`
	GetKey     *wireTarget     `json:"get_key,omitempty"`
	Explain    *wireWhich      `json:"explain,omitempty"`
}

// isQuestion returns whether the request changes nothing, however often it is sent.
func (r *wireRequest) isQuestion() bool {
	return r.GetLease != nil || r.GetLock != nil || r.GetKey != nil || r.Explain != nil
}

type wireAcquire struct {
	Lock           string          `json:"lock,omitempty"`
	Locks          []wireLockAsk   `json:"locks,omitempty"`
	Lease          decimal         `json:"lease,omitempty"`
	NewLease       *wireGrantLease `json:"new_lease,omitempty"`
	Mode           string          `json:"mode,omitempty"`
	Slots          uint32          `json:"slots,omitempty"`
	WaitMs         *uint64         `json:"wait_ms,omitempty"`
	LockDelayMs    uint64          `json:"lock_delay_ms,omitempty"`
	MaxHoldMs      *uint64         `json:"max_hold_ms,omitempty"`
	Metadata       *string         `json:"metadata,omitempty"`
	MetadataBase64 *string         `json:"metadata_base64,omitempty"`
	Election       bool            `json:"election,omitempty"`
	Independent    bool            `json:"independent,omitempty"`
}

type wireLockAsk struct {
	Lock  string `json:"lock"`
	Mode  string `json:"mode,omitempty"`
	Slots uint32 `json:"slots,omitempty"`
}

type wireGrantLease struct {
	TTLMs  uint64  `json:"ttl_ms"`
	Lease  decimal `json:"lease,omitempty"`
	Client string  `json:"client,omitempty"`
}

type wireHold struct {
	Lock  string  `json:"lock"`
	Lease decimal `json:"lease"`
	Token decimal `json:"token"`
}

type wireUpdate struct {
	wireHold
	Metadata       *string `json:"metadata,omitempty"`
	MetadataBase64 *string `json:"metadata_base64,omitempty"`
}

type wireRevoke struct {
	Lease  decimal `json:"lease"`
	Reason *string `json:"reason,omitempty"`
	By     string  `json:"by,omitempty"`
	Now    bool    `json:"now,omitempty"`
}

type wireWhich struct {
	Lock  string  `json:"lock"`
	Lease decimal `json:"lease,omitempty"`
}

type wireStopped struct {
	Lock         string  `json:"lock"`
	Lease        decimal `json:"lease"`
	LeaseCreated decimal `json:"lease_created"`
	Token        decimal `json:"token"`
}

type wireForce struct {
	Lock   string  `json:"lock"`
	Token  decimal `json:"token"`
	Reason string  `json:"reason"`
	By     string  `json:"by,omitempty"`
	Now    bool    `json:"now,omitempty"`
}

type wirePut struct {
	Key         string      `json:"key"`
	Value       *string     `json:"value,omitempty"`
	ValueBase64 *string     `json:"value_base64,omitempty"`
	Lease       decimal     `json:"lease,omitempty"`
	Expect      *wireExpect `json:"expect,omitempty"`
	Guard       *wireGuard  `json:"guard,omitempty"`
}

type wireDelete struct {
	Key    string      `json:"key"`
	Expect *wireExpect `json:"expect,omitempty"`
	Guard  *wireGuard  `json:"guard,omitempty"`
}

type wireExpect struct {
	Absent      bool     `json:"absent,omitempty"`
	Modified    *decimal `json:"modified,omitempty"`
	Value       *string  `json:"value,omitempty"`
	ValueBase64 *string  `json:"value_base64,omitempty"`
}

type wireGuard struct {
	Lock  string  `json:"lock"`
	Token decimal `json:"token"`
}

type wireTarget struct {
	Name  string `json:"name"`
	Stale bool   `json:"stale,omitempty"`
}

type serverMessage struct {
	Welcome     *wireWelcome     `json:"welcome"`
	Answers     []wireAnswer     `json:"answers"`
	Grants      []wireGranted    `json:"grants"`
	Losses      []wireLost       `json:"losses"`
	WaitsEnded  []wireWaitEnded  `json:"waits_ended"`
	LeasesEnded []wireLeaseEnded `json:"leases_ended"`
	Leader      *wireLeader      `json:"leader"`
	Closing     *wireError       `json:"closing"`
}

type wireWelcome struct {
	Header                wireHeader  `json:"header"`
	Member                string      `json:"member"`
	Epoch                 uint32      `json:"epoch"`
	Incarnation           decimal     `json:"incarnation"`
	Leader                *wireLeader `json:"leader"`
	InFlightMax           int         `json:"in_flight_max"`
	RequestsPerMessageMax int         `json:"requests_per_message_max"`
	MessageBytesMax       int         `json:"message_bytes_max"`
}

type wireHeader struct {
	ClusterID decimal `json:"cluster_id"`
	MemberID  decimal `json:"member_id"`
	Revision  decimal `json:"revision"`
}

type wireLeader struct {
	Address  string  `json:"address"`
	MemberID decimal `json:"member_id"`
	Name     string  `json:"name"`
}

// A wireAnswer is the id of a request, and exactly one result.
type wireAnswer struct {
	ID           uint64            `json:"id"`
	Revision     decimal           `json:"revision"`
	Error        *wireError        `json:"error"`
	Acquired     *wireAcquired     `json:"acquired"`
	Queued       *wireQueued       `json:"queued"`
	Ended        *struct{}         `json:"ended"`
	Released     *struct{}         `json:"released"`
	Revoked      *struct{}         `json:"revoked"`
	Stopped      *struct{}         `json:"stopped"`
	Renewed      []wireRenewed     `json:"renewed"`
	LeaseGranted *wireLeaseGranted `json:"lease_granted"`
	Left         *wireLeft         `json:"left"`
	Downgraded   *wireNewToken     `json:"downgraded"`
	Updated      *wireVersion      `json:"updated"`
	Forced       *wireForced       `json:"forced"`
	Put          *wireKeyPut       `json:"put"`
	Deleted      *wireKeyDeleted   `json:"deleted"`
	Lease        *wireLeaseAnswer  `json:"lease"`
	Lock         *wireLockState    `json:"lock"`
	Key          *wireKeyAnswer    `json:"key"`
	Explained    *wireExplained    `json:"explained"`
}

type wireError struct {
	Reason       string         `json:"reason"`
	Message      string         `json:"message"`
	Effect       Effect         `json:"effect"`
	Next         string         `json:"next"`
	Lock         string         `json:"lock"`
	Holder       *wireHolder    `json:"holder"`
	Ahead        int            `json:"ahead"`
	RetryAfterMs uint64         `json:"retry_after_ms"`
	Ring         []wireRingLink `json:"ring"`
	Revision     decimal        `json:"revision"`
}

type wireHolder struct {
	Client string  `json:"client"`
	HeldMs uint64  `json:"held_ms"`
	Token  decimal `json:"token"`
}

type wireRingLink struct {
	Client string `json:"client"`
	Lock   string `json:"lock"`
}

type wireAcquired struct {
	Token decimal           `json:"token"`
	Slot  *uint32           `json:"slot"`
	Locks []wireHolding     `json:"locks"`
	Lease *wireLeaseGranted `json:"lease"`
}

type wireQueued struct {
	Ahead int               `json:"ahead"`
	Lease *wireLeaseGranted `json:"lease"`
}

type wireHolding struct {
	Lock  string  `json:"lock"`
	Token decimal `json:"token"`
	Slot  *uint32 `json:"slot"`
}

type wireLeaseGranted struct {
	Lease   decimal `json:"lease"`
	Created decimal `json:"created"`
	TTLMs   uint64  `json:"ttl_ms"`
}

type wireRenewed struct {
	Lease   decimal `json:"lease"`
	TTLMs   uint64  `json:"ttl_ms"`
	Changed decimal `json:"changed"`
}

type wireLeft struct {
	Held []wireHolding `json:"held"`
}

type wireNewToken struct {
	Token decimal `json:"token"`
}

type wireVersion struct {
	Version uint64 `json:"version"`
}

type wireForced struct {
	LeftMs uint64 `json:"left_ms"`
}

type wireKeyPut struct {
	Version uint64  `json:"version"`
	Created decimal `json:"created"`
}

type wireKeyDeleted struct {
	Existed bool `json:"existed"`
}

type wireLeaseAnswer struct {
	Lease *wireLeaseShown `json:"lease"`
}

type wireLeaseShown struct {
	Changed decimal       `json:"changed"`
	Holds   []wireHolding `json:"holds"`
}

type wireLockState struct {
	Lock *wireLockShown `json:"lock"`
}

type wireLockShown struct {
	Lock     string            `json:"lock"`
	Created  decimal           `json:"created"`
	Modified decimal           `json:"modified"`
	Version  uint64            `json:"version"`
	Slots    uint32            `json:"slots"`
	Holders  []wireHolderShown `json:"holders"`
	Waiting  int               `json:"waiting"`
}

type wireHolderShown struct {
	Client         string  `json:"client"`
	Token          decimal `json:"token"`
	Lease          decimal `json:"lease"`
	Slot           *uint32 `json:"slot"`
	Mode           string  `json:"mode"`
	State          string  `json:"state"`
	Election       bool    `json:"election"`
	HeldMs         uint64  `json:"held_ms"`
	LeftMs         *uint64 `json:"left_ms"`
	Metadata       *string `json:"metadata"`
	MetadataBase64 *string `json:"metadata_base64"`
}

type wireKeyAnswer struct {
	Key *wireKeyShown `json:"key"`
}

type wireKeyShown struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 *string `json:"value_base64"`
	Created     decimal `json:"created"`
	Modified    decimal `json:"modified"`
	Version     uint64  `json:"version"`
	Lease       decimal `json:"lease"`
}

type wireExplained struct {
	Lock           *wireLockShown `json:"lock"`
	Ahead          []wireWaiter   `json:"ahead"`
	FreeAtLatestMs *uint64        `json:"free_at_latest_ms"`
	FreeIfSilentMs *uint64        `json:"free_if_silent_ms"`
	UsuallyHeldMs  *uint64        `json:"usually_held_ms"`
}

type wireWaiter struct {
	Client    string `json:"client"`
	WaitingMs uint64 `json:"waiting_ms"`
}

type wireGranted struct {
	ID       uint64        `json:"id"`
	Lock     string        `json:"lock"`
	Token    decimal       `json:"token"`
	Slot     *uint32       `json:"slot"`
	Locks    []wireHolding `json:"locks"`
	Revision decimal       `json:"revision"`
}

type wireLost struct {
	Lock   string  `json:"lock"`
	Token  decimal `json:"token"`
	Lease  decimal `json:"lease"`
	Cause  string  `json:"cause"`
	By     string  `json:"by"`
	Reason string  `json:"reason"`
}

type wireWaitEnded struct {
	ID uint64 `json:"id"`
}

type wireLeaseEnded struct {
	Lease  decimal `json:"lease"`
	Cause  string  `json:"cause"`
	By     string  `json:"by"`
	Reason string  `json:"reason"`
}

// textOrBase64 returns bytes as text if they are text, else as base64.
func textOrBase64(value []byte) (text, encoded *string) {
	if utf8.Valid(value) {
		word := string(value)
		return &word, nil
	}
	word := base64.StdEncoding.EncodeToString(value)
	return nil, &word
}

// bytesOf reads bytes that are text or base64.
func bytesOf(text, encoded *string) []byte {
	switch {
	case text != nil:
		return []byte(*text)
	case encoded != nil:
		value, err := base64.StdEncoding.DecodeString(*encoded)
		if err == nil {
			return value
		}
	}
	return nil
}

func milliseconds(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }

// millis rounds a duration up to milliseconds: a limit is never shorter on the wire than it was asked for.
func millis(d time.Duration) uint64 {
	return uint64(max((d+time.Millisecond-1)/time.Millisecond, 0))
}

// refusal turns an error of the wire into that of the client.
func (e *wireError) refusal() *RefusedError {
	refused := &RefusedError{
		Reason: e.Reason, Message: e.Message, Next: e.Next, Lock: e.Lock, Ahead: e.Ahead,
		RetryAfter: milliseconds(e.RetryAfterMs), effect: e.Effect,
	}
	if e.Holder != nil {
		refused.Holder = &Holder{
			Client: e.Holder.Client, Token: Token(e.Holder.Token), Held: milliseconds(e.Holder.HeldMs),
		}
	}
	for _, link := range e.Ring {
		refused.Ring = append(refused.Ring, RingLink(link))
	}
	return refused
}

// A meaning is what an error of the wire means for the sender of the request.
type meaning struct {
	// err is the error if the request is not sent again: it had no effect, and repeating it will not help.
	err error
	// again: the request had no effect and may be sent again, after this time at the earliest.
	again bool
	after time.Duration
	// doubt: the request may have taken effect.
	doubt bool
}

func (e *wireError) meaning() meaning {
	if e.Effect == EffectUnknown {
		return meaning{doubt: true}
	}
	after := milliseconds(e.RetryAfterMs)
	switch e.Reason {
	// Of all reasons that allow a retry, these go away soon and without intervention.
	case "NOT_LEADER", "NO_LEADER", "NO_QUORUM", "DEADLINE", "SHUTTING_DOWN", "CORRUPT", "REQUEST_WINDOW",
		"TOO_MANY_HOPS":
		return meaning{again: true, after: after}
	case "OVERLOADED":
		return meaning{again: true, after: after, err: e.refusal()}
	case "QUOTA":
		// A quota that is counted by time says when there is room again; others are full until their user frees some.
		return meaning{again: after > 0, after: after, err: e.refusal()}
	}
	return meaning{err: e.refusal()}
}

// isDenial returns whether the reason is about the client's credentials.
func isDenial(reason string) bool {
	return reason == "UNAUTHENTICATED" || reason == "PERMISSION_DENIED" || reason == "FORBIDDEN"
}
