// Package failsafe turns Felix's settings into the ports that host endpoints never close.
//
// Invariant: a setting that cannot be read counts as absent, so that the node stays reachable.
package failsafe

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// Port is a port that host endpoints never close.
type Port struct {
	Proto uint8        // TCP or UDP
	Net   netip.Prefix // of the other side; invalid: any address
	Port  uint16
}

// The names of the settings in Felix v3.31, and their default values.
const (
	ConfigIn   = "FailsafeInboundHostPorts"
	ConfigOut  = "FailsafeOutboundHostPorts"
	defaultIn  = "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667"
	defaultOut = "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667"
)

// Ports reads Felix's settings. The first list is for packets to the node, the second one for packets from it.
func Ports(config map[string]string) [2][]Port {
	var out [2][]Port
	for i, s := range [2]struct{ key, preset string }{{ConfigIn, defaultIn}, {ConfigOut, defaultOut}} {
		list, ok := Parse(config[s.key])
		if !ok {
			list, _ = Parse(s.preset)
		}
		out[i] = list
	}
	return out
}

// Parse parses a list of "proto:port", "proto:net:port" or "port", which is TCP; "none" is an empty list, "" the default.
func Parse(text string) ([]Port, bool) {
	if text == "" {
		return nil, false
	}
	if strings.EqualFold(text, "none") {
		return nil, true
	}
	var out []Port
	for item := range strings.SplitSeq(text, ",") {
		p, ok := parsePort(strings.TrimSpace(item))
		if !ok {
			return nil, false
		}
		out = append(out, p)
	}
	return out, true
}

func parsePort(text string) (Port, bool) {
	p := Port{Proto: 6}
	if name, rest, found := strings.Cut(text, ":"); found {
		switch strings.ToLower(name) {
		case "tcp":
		case "udp":
			p.Proto = 17
		default:
			return p, false
		}
		text = rest
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			n, err := netset.Parse(strings.NewReplacer("[", "", "]", "").Replace(rest[:i]))
			if err != nil {
				return p, false
			}
			p.Net, text = n, rest[i+1:]
		}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	p.Port = uint16(port)
	return p, err == nil
}
