package datastore

import (
	"fmt"
	"net/netip"
)

// Update is one decoded change of the datastore.
type Update struct {
	Key Key // zero: the key is unknown, and the update changes nothing
	// Value is the new value; nil: the key is deleted. Its type depends on the key:
	//
	//	KeyWorkload                    *model.WorkloadEndpoint
	//	KeyHostEndpoint                *model.HostEndpoint
	//	KeyNetworkSet                  *model.NetworkSet
	//	KeyTier                        *model.Tier
	//	KeyTieredPolicy, KeyPolicy     *model.Policy, with the key's identifier (Key.PolicyID)
	//	KeyProfileRules                *model.ProfileRules
	//	KeyProfileLabels, profiles     Labels
	//	KeyPool, KeyBlock              *model.Pool, *model.Block
	//	KeyHostIP                      netip.Addr
	//	KeyConfig, KeyHostConfig       string
	//	KeyReady                       bool
	//	KeyWireguard                   *model.Wireguard
	//	nodes                          *model.Host
	//	kubernetesendpointslices       *model.EndpointSlice
	//	kubernetesservice              *model.Service
	//	bgpconfigurations              *model.BGPConfig
	//	all others                     json.RawMessage: nothing depends on it
	Value any
}

// Labels are the labels that endpoints inherit from a profile.
type Labels map[string]string

// Error says why a value is refused.
type Error struct {
	Key    string // as given
	Field  string // "inbound_rules[2].src_nets"; "" means the whole value
	Reason string
}

// Error returns "<key>: <field>: <reason>".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Key + ": " + e.Reason
	}
	return e.Key + ": " + e.Field + ": " + e.Reason
}

// reader reads one value and keeps the first error.
type reader struct {
	key  Key
	path string
	err  error
}

func (r *reader) failField(field, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Key: r.path, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
}

// addr reads an address.
func (r *reader) addr(field, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		r.failField(field, "%.100q is not an IP address", text)
		return netip.Addr{}
	}
	return a.Unmap()
}

// optionalAddr is addr, but an empty text means no address.
func (r *reader) optionalAddr(field, text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	return r.addr(field, text)
}

// network reads a network, or an address as the network of itself. It keeps host bits.
func (r *reader) network(field, text string) netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
		return p
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		r.failField(field, "%.100q is not a network", text)
		return netip.Prefix{}
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

// networks reads a list of networks and clears their host bits.
func (r *reader) networks(field string, list ...string) []netip.Prefix {
	if len(list) == 0 {
		return nil
	}
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = r.network(fieldAt(field, i), text).Masked()
	}
	return out
}

func fieldAt(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
