package punt

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/binapi/ip_types"
	vpppunt "go.fd.io/govpp/binapi/punt"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idReasons = "punt_reason_dump"
	// puntVersion is the only version of the header that VPP puts before a punted packet.
	puntVersion = 1
	// maxSocketPath is the longest path that fits into sun_path with its NUL; VPP would truncate a longer one.
	maxSocketPath = 107
)

// toHost sends UDP packets for VPP's own addresses to a program.
type toHost struct {
	l3    punt.L3Protocol
	port  uint16
	paths [2]string // by address family: the program's socket, "": none
}

// ToHost describes the part of ligato's ToHost that VPP shows again: UDP packets of a port, to a socket. VPP must have a punt
// socket from its startup.conf ("punt { socket <path> }"). No message shows the effect of set_punt, which would pass packets to
// the host's stack.
func ToHost() *descriptor.Descriptor {
	return descriptor.Spec[*punt.ToHost, *toHost]{
		Name: "punt-to-host", Prefix: "config/vpp/v2/tohost/",
		Compile: compileToHost,
		Message: func(t *toHost) *punt.ToHost {
			return &punt.ToHost{L3Protocol: t.l3, L4Protocol: punt.L4Protocol_UDP, Port: uint32(t.port), SocketPath: t.path()}
		},
		Equal: func(have, want *toHost) bool { return have.paths == want.paths },
		Create: func(_ *descriptor.World, t *toHost) ([]descriptor.Op, error) {
			return t.sendFamilies(func(af int) bool { return t.paths[af] != "" }, true), nil
		},
		Update: func(_ *descriptor.World, have, want *toHost) ([]descriptor.Op, error) { // replaces
			return want.sendFamilies(func(af int) bool { return want.paths[af] != have.paths[af] }, true), nil
		},
		Delete: func(_ *descriptor.World, t *toHost) ([]descriptor.Op, error) {
			return t.sendFamilies(func(af int) bool { return t.paths[af] != "" }, false), nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{socketRequest(vpppunt.PUNT_API_TYPE_L4)}
		},
		Retrieve: retrieveToHosts,
	}.Descriptor()
}

func socketRequest(t vpppunt.PuntType) descriptor.Request {
	return descriptor.DumpRequest("punt_socket_dump "+t.String(), &vpppunt.PuntSocketDump{Type: t})
}

func compileToHost(_ string, m *punt.ToHost) (*toHost, error) {
	t := &toHost{l3: m.GetL3Protocol(), port: uint16(m.GetPort())}
	switch {
	case m.GetL4Protocol() != punt.L4Protocol_UDP:
		return nil, fmt.Errorf("l4_protocol: %s is not supported: VPP hands on UDP alone", m.GetL4Protocol())
	case m.GetPort() == 0 || m.GetPort() >= 65535: // 65535 means all ports to VPP, which it refuses here
		return nil, fmt.Errorf("port: %d is not in 1-65534", m.GetPort())
	}
	if err := checkSocket(m.GetSocketPath()); err != nil {
		return nil, err
	}
	switch m.GetL3Protocol() {
	case punt.L3Protocol_IPV4:
		t.paths[ip_types.ADDRESS_IP4] = m.GetSocketPath()
	case punt.L3Protocol_IPV6:
		t.paths[ip_types.ADDRESS_IP6] = m.GetSocketPath()
	case punt.L3Protocol_ALL:
		t.paths = [2]string{m.GetSocketPath(), m.GetSocketPath()}
	default:
		return nil, fmt.Errorf("l3_protocol: %s is none", m.GetL3Protocol())
	}
	return t, nil
}

func checkSocket(path string) error {
	switch {
	case path == "":
		return errors.New("socket_path: empty, and not supported: VPP would not tell what it hands to the host's stack")
	case len(path) > maxSocketPath:
		return fmt.Errorf("socket_path: longer than %d bytes", maxSocketPath)
	}
	return nil
}

// path returns the one socket, of either family.
func (t *toHost) path() string {
	if t.paths[0] != "" {
		return t.paths[0]
	}
	return t.paths[1]
}

// sendFamilies registers or deregisters the chosen families.
func (t *toHost) sendFamilies(chosen func(af int) bool, add bool) (ops []descriptor.Op) {
	for af, path := range t.paths {
		if chosen(af) {
			ops = append(ops, registration(vpppunt.Punt{Type: vpppunt.PUNT_API_TYPE_L4, Punt: vpppunt.PuntUnionL4(vpppunt.PuntL4{
				Af: ip_types.AddressFamily(af), Protocol: ip_types.IP_API_PROTO_UDP, Port: t.port,
			})}, path, add))
		}
	}
	return ops
}

func registration(p vpppunt.Punt, path string, add bool) descriptor.Op {
	if add {
		return descriptor.Op{Call: descriptor.Write(&vpppunt.PuntSocketRegister{HeaderVersion: puntVersion, Punt: p, Pathname: path})}
	}
	return descriptor.Op{Call: descriptor.Write(&vpppunt.PuntSocketDeregister{Punt: p})}
}

// retrieveToHosts looks up the candidates.
func retrieveToHosts(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*vpppunt.PuntSocketDetails](d, socketRequest(vpppunt.PUNT_API_TYPE_L4).ID)
	if err != nil {
		return nil, err
	}
	type place struct {
		af   ip_types.AddressFamily
		port uint16
	}
	inVPP := map[place]string{}
	for _, m := range all {
		if l4 := m.Punt.Punt.GetL4(); l4.Protocol == ip_types.IP_API_PROTO_UDP {
			inVPP[place{l4.Af, l4.Port}] = descriptor.FixedText(m.Pathname)
		}
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		if !wanted && c.Wanted(key) != nil {
			return
		}
		t := state.(*toHost)
		got := &toHost{l3: t.l3, port: t.port}
		for af := range t.paths {
			if t.paths[af] != "" {
				got.paths[af] = inVPP[place{ip_types.AddressFamily(af), t.port}]
			}
		}
		if got.paths != [2]string{} {
			out = append(out, descriptor.Found{Key: key, State: got})
		}
	})
	return out, nil
}

// puntException sends packets that VPP drops for a reason to a program.
type puntException struct{ reason, path string }

// PuntException describes ligato's Exception. Plug-ins register reasons, so the agent looks up VPP's numbers of reasons by name.
func PuntException() *descriptor.Descriptor {
	return descriptor.Spec[*punt.Exception, *puntException]{
		Name: "punt-exception", Prefix: "config/vpp/v2/exception/",
		Compile: func(_ string, m *punt.Exception) (*puntException, error) {
			if m.GetReason() == "" {
				return nil, errors.New("reason: empty")
			}
			return &puntException{m.GetReason(), m.GetSocketPath()}, checkSocket(m.GetSocketPath())
		},
		Message: func(e *puntException) *punt.Exception {
			return &punt.Exception{Reason: e.reason, SocketPath: e.path}
		},
		Equal: func(have, want *puntException) bool { return *have == *want },
		Create: func(_ *descriptor.World, e *puntException) ([]descriptor.Op, error) {
			return e.sendException(true), nil
		},
		Update: func(_ *descriptor.World, _, want *puntException) ([]descriptor.Op, error) {
			return want.sendException(true), nil
		}, // replaces
		Delete: func(_ *descriptor.World, e *puntException) ([]descriptor.Op, error) {
			return e.sendException(false), nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{reasonRequest(), socketRequest(vpppunt.PUNT_API_TYPE_EXCEPTION)}
		},
		Retrieve: retrieveExceptions,
	}.Descriptor()
}

func reasonRequest() descriptor.Request {
	return descriptor.DumpRequest(idReasons, &vpppunt.PuntReasonDump{})
}

// sendException first asks for the number of the reason: VPP does not answer requests with an unknown number.
func (e *puntException) sendException(add bool) []descriptor.Op {
	var id uint32
	return []descriptor.Op{{
		Asks: true, Call: reasonRequest().Call,
		Refuses: func(r vpp.Reply) error {
			for _, m := range r.Details {
				if m, ok := m.(*vpppunt.PuntReasonDetails); ok && descriptor.FixedText(m.Reason.Name) == e.reason {
					id = m.Reason.ID
					return nil
				}
			}
			return fmt.Errorf("reason: VPP has none of the name %q", e.reason)
		},
		Then: func(vpp.Reply) []descriptor.Op {
			return []descriptor.Op{registration(vpppunt.Punt{
				Type: vpppunt.PUNT_API_TYPE_EXCEPTION, Punt: vpppunt.PuntUnionException(vpppunt.PuntException{ID: id}),
			}, e.path, add)}
		},
	}}
}

// retrieveExceptions looks up the candidates.
func retrieveExceptions(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	reasons, err := descriptor.Details[*vpppunt.PuntReasonDetails](d, idReasons)
	if err != nil {
		return nil, err
	}
	all, err := descriptor.Details[*vpppunt.PuntSocketDetails](d, socketRequest(vpppunt.PUNT_API_TYPE_EXCEPTION).ID)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{} // by reason
	for _, r := range reasons {
		for _, m := range all {
			if m.Punt.Punt.GetException().ID == r.Reason.ID {
				paths[descriptor.FixedText(r.Reason.Name)] = descriptor.FixedText(m.Pathname)
			}
		}
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		e := state.(*puntException)
		if path, ok := paths[e.reason]; ok && (wanted || c.Wanted(key) == nil) {
			out = append(out, descriptor.Found{Key: key, State: &puntException{e.reason, path}})
		}
	})
	return out, nil
}
