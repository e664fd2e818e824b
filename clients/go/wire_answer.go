// Defines the messages that a member sends on a WebSocket session, as far as the client uses them.

package tenure

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
	HandedOn     *wireNewToken     `json:"handed_on"`
	Progressed   *wireProgressed   `json:"progressed"`
	Resized      *struct{}         `json:"resized"`
	Drained      *struct{}         `json:"drained"`
	Undrained    *wireUndrained    `json:"undrained"`
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

type wireProgressed struct {
	LeftMs *uint64 `json:"left_ms"`
}

type wireUndrained struct {
	Existed bool `json:"existed"`
}

type wireDrainShown struct {
	Prefix      string  `json:"prefix"`
	DrainedMs   uint64  `json:"drained_ms"`
	By          string  `json:"by"`
	Principal   string  `json:"principal"`
	Reason      string  `json:"reason"`
	Created     decimal `json:"created"`
	Holders     int     `json:"holders"`
	MoreHolders bool    `json:"more_holders"`
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
	Sized    bool              `json:"sized"`
	Holders  []wireHolderShown `json:"holders"`
	Waiting  int               `json:"waiting"`
}

type wireHolderShown struct {
	Client         string             `json:"client"`
	Token          decimal            `json:"token"`
	Lease          decimal            `json:"lease"`
	Slot           *uint32            `json:"slot"`
	Mode           string             `json:"mode"`
	State          string             `json:"state"`
	Election       bool               `json:"election"`
	HeldMs         uint64             `json:"held_ms"`
	LeftMs         *uint64            `json:"left_ms"`
	RenewedMs      *uint64            `json:"renewed_ms"`
	Metadata       *string            `json:"metadata"`
	MetadataBase64 *string            `json:"metadata_base64"`
	LockDelayMs    uint64             `json:"lock_delay_ms"`
	MinHoldMs      uint64             `json:"min_hold_ms"`
	MaxHoldMs      *uint64            `json:"max_hold_ms"`
	Progress       *wireProgressShown `json:"progress"`
}

type wireProgressShown struct {
	Number   decimal `json:"number"`
	WithinMs uint64  `json:"within_ms"`
	StillMs  uint64  `json:"still_ms"`
	LeftMs   uint64  `json:"left_ms"`
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
	Lock           *wireLockShown  `json:"lock"`
	Ahead          []wireWaiter    `json:"ahead"`
	Own            *wireWaiter     `json:"own"`
	Chain          []wireChainStep `json:"chain"`
	ChainGoesOn    bool            `json:"chain_goes_on"`
	FreeAtLatestMs *uint64         `json:"free_at_latest_ms"`
	FreeIfSilentMs *uint64         `json:"free_if_silent_ms"`
	UsuallyHeldMs  *uint64         `json:"usually_held_ms"`
	UsuallyOf      int             `json:"usually_of"`
	QuietMs        *uint64         `json:"quiet_ms"`
	ReopeningMs    *uint64         `json:"reopening_ms"`
	Drained        *wireDrainShown `json:"drained"`
}

type wireWaiter struct {
	Client     string   `json:"client"`
	Lease      decimal  `json:"lease"`
	Mode       string   `json:"mode"`
	Slots      int      `json:"slots"`
	Take       int      `json:"take"`
	Created    decimal  `json:"created"`
	Ahead      int      `json:"ahead"`
	WaitingMs  uint64   `json:"waiting_ms"`
	LeftMs     *uint64  `json:"left_ms"`
	Election   bool     `json:"election"`
	Locks      []string `json:"locks"`
	Any        bool     `json:"any"`
	Pool       string   `json:"pool"`
	Supersede  string   `json:"supersede"`
	Priority   int      `json:"priority"`
	PassableMs uint64   `json:"passable_ms"`
}

type wireChainStep struct {
	Lock   string  `json:"lock"`
	Client string  `json:"client"`
	Lease  decimal `json:"lease"`
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
	ID                uint64     `json:"id"`
	SupersededBy      string     `json:"superseded_by"`
	SupersededByLease decimal    `json:"superseded_by_lease"`
	Error             *wireError `json:"error"`
}

type wireLeaseEnded struct {
	Lease  decimal `json:"lease"`
	Cause  string  `json:"cause"`
	By     string  `json:"by"`
	Reason string  `json:"reason"`
}
