package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Session is a session of VPP's ACL plugin at one interface. VPP keeps it some time after the connection: 120 s after both ends have
// closed a TCP connection, 600 s after the last packet of UDP (acl-plugin, VPP 24.06 to 26.06).
type Session struct {
	Src, Dst         netip.Addr // of the packet that made it
	Protocol         uint8
	SrcPort, DstPort uint16 // type and code of ICMP
	Input            bool   // the packet came in by the interface; false: it left by it
	Interface        uint16 // the lower bits of its index
	ID               string // of the session, by VPP's thread
}

// ErrMany means that VPP has more sessions than the caller wants to read.
var ErrMany = errors.New("too many sessions")

var (
	activeSessions = regexp.MustCompile(`Sessions active: add \d+ - deact \d+ = (\d+)`)
	sessionEntry   = regexp.MustCompile(`l3 (\S+) -> (\S+) l4 lsb_of_sw_if_index (\d+) proto (\d+) l4_is_input ([01]) \S+ \S+ l4_flags \S+ port (\d+) -> (\d+) \| sess id (\d+) thread id (\d+) epoch ([0-9a-f]{4})`)
)

// madeByInput is the bit of a session's epoch that the input's lists set.
const madeByInput = '8'

// allSessions is a command that prints how many sessions there are.
const allSessions = "show acl-plugin sessions"

// Sessions lists the sessions of the ACL plugin (show acl-plugin sessions verbose 1). VPP forwards nothing while it prints them. With more
// than most it prints none, and the error is ErrMany: a Sampler reads some of them.
func Sessions(ctx context.Context, do Do, most uint64) ([]Session, error) {
	text, err := command(ctx, do, allSessions)
	if err != nil {
		return nil, err
	}
	if m := activeSessions.FindStringSubmatch(text); m != nil && parseCount(m[1]) > most {
		return nil, fmt.Errorf("%w: %s, at most %d are read", ErrMany, m[1], most)
	}
	if text, err = command(ctx, do, allSessions+" verbose 1"); err != nil {
		return nil, err
	}
	return parseSessions(text), nil
}

// parseSessions reads the entries of both hash tables. Each session has one for each direction of its packets; the one of its first packet
// has the direction of the lists that made it.
func parseSessions(text string) (out []Session) {
	for line := range strings.Lines(text) {
		m := sessionEntry.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		src, err := netip.ParseAddr(m[1])
		dst, also := netip.ParseAddr(m[2])
		input := m[5] == "1"
		if err != nil || also != nil || input != (m[10][0] >= madeByInput) {
			continue
		}
		s := Session{Src: src, Dst: dst, Input: input, ID: m[9] + "/" + m[8]}
		if _, err := fmt.Sscan(m[3]+" "+m[4]+" "+m[6]+" "+m[7], &s.Interface, &s.Protocol, &s.SrcPort, &s.DstPort); err == nil {
			out = append(out, s)
		}
	}
	return out
}
