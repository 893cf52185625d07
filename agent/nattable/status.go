package nattable

import (
	"fmt"
	"net/netip"
	"strings"
)

// Status is the use of VPP's NAT44 session table, its holders, and the sessions that the agent freed.
type Status struct {
	Used    uint64   `json:"used"`
	Limit   uint64   `json:"limit"`             // over all workers
	Holders []Holder `json:"holders,omitempty"` // clients with most sessions, largest first; from half of the table on
	Expired uint64   `json:"freedExpired"`      // expired sessions that the agent freed since it started
	Evicted uint64   `json:"freedEvicted"`      // other sessions that it freed, of pods above their share
	Drained uint64   `json:"drained"`           // endpoints that stopped to get new connections and kept theirs, since the agent started
	Lost    uint64   `json:"notDrained"`        // endpoints that could not be drained: their connections ended at once
	Full    bool     `json:"full,omitempty"`    // new connections through Services fail, or soon will
	Problem string   `json:"problem,omitempty"` // "": no problem
	Remark  string   `json:"remark,omitempty"`  // "" unless VPP's table has another size than configured
}

// Holder is a client whose connections have sessions.
type Holder struct {
	Addr     netip.Addr `json:"address"`
	Pod      string     `json:"pod,omitempty"` // namespace/name of a pod of this node; "": not a pod of this node
	Sessions uint64     `json:"sessions"`
}

// String returns "pod <namespace>/<name> (<address>) <sessions>", or without a pod "<address> <sessions>".
func (h Holder) String() string {
	if h.Pod != "" {
		return fmt.Sprintf("pod %s (%s) %d", h.Pod, h.Addr, h.Sessions)
	}
	return fmt.Sprintf("%s %d", h.Addr, h.Sessions)
}

func holdersText(holders []Holder) string {
	var out []string
	for _, h := range holders {
		out = append(out, h.String())
	}
	return strings.Join(out, ", ")
}
