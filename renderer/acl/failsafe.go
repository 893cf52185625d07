package acl

import (
	"net/netip"
	"strconv"
	"strings"
)

// failsafe is a port that host endpoints never close.
type failsafe struct {
	proto uint8
	net   netip.Prefix // of the other side; invalid: any address
	port  uint16
}

// The names and default values of settings in Felix v3.31.
const (
	configFailsafeIn  = "FailsafeInboundHostPorts"
	configFailsafeOut = "FailsafeOutboundHostPorts"
	defaultIn         = "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667"
	defaultOut        = "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667"
)

// failsafes reads Felix's settings. It treats an unreadable value as absent, so that the node stays reachable.
func failsafes(config map[string]string) [2][]failsafe {
	var out [2][]failsafe
	for i, s := range [2]struct{ key, preset string }{{configFailsafeIn, defaultIn}, {configFailsafeOut, defaultOut}} {
		list, ok := parseFailsafes(config[s.key])
		if !ok {
			list, _ = parseFailsafes(s.preset)
		}
		out[i] = list
	}
	return out
}

// parseFailsafes parses a list of "proto:port", "proto:net:port" or "port", which is TCP; "none" is an empty list, "" the default.
func parseFailsafes(text string) ([]failsafe, bool) {
	if text == "" {
		return nil, false
	}
	if strings.EqualFold(text, "none") {
		return nil, true
	}
	var out []failsafe
	for item := range strings.SplitSeq(text, ",") {
		p, ok := parseFailsafe(strings.TrimSpace(item))
		if !ok {
			return nil, false
		}
		out = append(out, p)
	}
	return out, true
}

func parseFailsafe(text string) (failsafe, bool) {
	p := failsafe{proto: protoTCP}
	if name, rest, found := strings.Cut(text, ":"); found {
		switch strings.ToLower(name) {
		case "tcp":
		case "udp":
			p.proto = protoUDP
		default:
			return p, false
		}
		text = rest
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			n, err := parseNet(strings.NewReplacer("[", "", "]", "").Replace(rest[:i]))
			if err != nil {
				return p, false
			}
			p.net, text = n, rest[i+1:]
		}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	p.port = uint16(port)
	return p, err == nil
}
