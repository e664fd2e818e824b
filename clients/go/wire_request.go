// Defines the messages that a client sends on a WebSocket session.

package tenure

import (
	"encoding/json"
	"fmt"
	"strconv"
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
	HandOn     *wireHandOn     `json:"hand_on,omitempty"`
	Progress   *wireProgress   `json:"progress,omitempty"`
	Resize     *wireResize     `json:"resize,omitempty"`
	Drain      *wireDrain      `json:"drain,omitempty"`
	Undrain    *wireUndrain    `json:"undrain,omitempty"`
}

// isQuestion returns whether the request changes nothing, however often it is sent.
func (r *wireRequest) isQuestion() bool {
	return r.GetLease != nil || r.GetLock != nil || r.GetKey != nil || r.Explain != nil
}

type wireAcquire struct {
	Lock             string          `json:"lock,omitempty"`
	Locks            []wireLockAsk   `json:"locks,omitempty"`
	Any              bool            `json:"any,omitempty"`
	Pool             string          `json:"pool,omitempty"`
	Lease            decimal         `json:"lease,omitempty"`
	NewLease         *wireGrantLease `json:"new_lease,omitempty"`
	Mode             string          `json:"mode,omitempty"`
	Slots            uint32          `json:"slots,omitempty"`
	Take             uint32          `json:"take,omitempty"`
	WaitMs           *uint64         `json:"wait_ms,omitempty"`
	LockDelayMs      uint64          `json:"lock_delay_ms,omitempty"`
	MaxHoldMs        *uint64         `json:"max_hold_ms,omitempty"`
	Metadata         *string         `json:"metadata,omitempty"`
	MetadataBase64   *string         `json:"metadata_base64,omitempty"`
	MinHoldMs        uint64          `json:"min_hold_ms,omitempty"`
	ProgressWithinMs uint64          `json:"progress_within_ms,omitempty"`
	Priority         uint32          `json:"priority,omitempty"`
	Supersede        string          `json:"supersede,omitempty"`
	Resume           bool            `json:"resume,omitempty"`
	Upgrade          bool            `json:"upgrade,omitempty"`
	Election         bool            `json:"election,omitempty"`
	Independent      bool            `json:"independent,omitempty"`
}

type wireLockAsk struct {
	Lock  string `json:"lock"`
	Mode  string `json:"mode,omitempty"`
	Slots uint32 `json:"slots,omitempty"`
	Take  uint32 `json:"take,omitempty"`
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

type wireHandOn struct {
	wireHold
	To decimal `json:"to"`
}

type wireProgress struct {
	wireHold
	Number decimal `json:"number"`
}

type wireResize struct {
	Lock  string `json:"lock"`
	Slots uint32 `json:"slots"`
	By    string `json:"by,omitempty"`
}

type wireDrain struct {
	Prefix string `json:"prefix"`
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"`
}

type wireUndrain struct {
	Prefix string `json:"prefix"`
	By     string `json:"by,omitempty"`
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
