package classify

// None is VPP's ~0: no table.
const None = ^uint32(0)

// vector is the unit tables are made of, in bytes.
const vector = 16

// Direction selects which packets of an interface a table matches.
type Direction uint8

// The two directions.
const (
	Input Direction = iota
	Output
	directions
)

// Kind is the purpose of an attachment.
type Kind uint8

// The kinds in VPP's order. A table for L2 is recorded and never used.
const (
	IP4 Kind = iota
	IP6
	L2
	Kinds
)

// Table is the configuration of a table.
type Table struct {
	// Buckets is rounded up to a power of two.
	Buckets uint32
	// Memory is the size of the sessions' memory, in bytes.
	Memory uint32
	// Skip and Match count vectors of 16 bytes: the mask applies to Match of them after Skip.
	Skip, Match uint32
	// Next is the table to try if no session of this one matches; None: the last table, and Miss is the next index.
	Next, Miss uint32
	// CurrentData counts from the IP header, Offset further; else from the beginning of the frame, on output from the IP header.
	CurrentData bool
	Offset      int16
	// Mask has Match vectors.
	Mask []byte
}

// Session is an entry of a table.
type Session struct {
	// Hit is the next index of packets that match, Opaque a value for its owner.
	Hit      uint16
	Opaque   uint32
	Advance  int32
	Action   uint8
	Metadata uint32
	// Match holds the required bytes under the mask, without the skipped vectors.
	Match []byte
	// Hits counts packets.
	Hits uint64
}

// Crash is a crash of VPP; the engine panics with it.
type Crash struct{ Trap string }

// Error names the trap.
func (c *Crash) Error() string { return c.Trap }

// The traps.
const (
	trapTableGone = "classifier: a packet meets a table that was deleted while it was attached or in a chain: SIGSEGV in vnet_classify_find_entry_inline"
	trapRound     = "classifier: a chain of tables goes round: VPP does nothing else any more"
	trapDelRound  = "classify_add_del_table: del_chain of a chain that goes round: SIGSEGV in vnet_classify_delete_table_index"
	trapMemory    = "classify_add_del_session: the table's memory_size is exhausted: SIGABRT in vnet_classify_entry_alloc"
)

// Return values of VPP 24.06 (vnet/error.h).
const (
	rvNoSuchEntry       int32 = -6
	rvInvalidValue      int32 = -7
	rvNoSuchTable       int32 = -65
	rvInvalidMemorySize int32 = -70
)

// Verdict is the result for a packet.
type Verdict struct {
	Pass bool
	// Table is the one that decided: the table of the matching session, or the last of the chain.
	Table uint32
	// Place counts the tables of the chain from 0.
	Place int
	// Hit reports that a session matched; Session is it.
	Hit     bool
	Session Session
}
