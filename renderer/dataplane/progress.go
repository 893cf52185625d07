package dataplane

import "net/netip"

// Progress is how far VPP is with the changes that it was sent. The zero value: it has all of them, and no connection ends.
type Progress struct {
	Behind       bool // VPP may lack a part of the changes
	Acknowledged bool // VPP has all changes that were sent before the last Progress with this
	// Ending returns the frontends and endpoints of connections that translations end: now, with the next changes, and late, with earlier ones that VPP
	// may lack. Nothing may admit packets to them before. The zero Addr is any address. Drivers call it in Apply. Nil: no connection ends.
	Ending func() (now, late []netip.Addr)
}
