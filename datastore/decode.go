package datastore

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Update is one change of the datastore, understood.
type Update struct {
	Key Key // zero: the key was not understood, and the update changes nothing
	// Value is what is there now; nil: nothing is. Its type goes with the key:
	//
	//	KeyWorkload                    *model.WorkloadEndpoint
	//	KeyHostEndpoint                *model.HostEndpoint
	//	KeyNetworkSet                  *model.NetworkSet
	//	KeyTier                        *model.Tier
	//	KeyTieredPolicy, KeyPolicy     *model.Policy, with the identifier the key says (Key.PolicyID)
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

// Labels are what a profile gives to whoever names it.
type Labels map[string]string

// Error says why a value is not taken.
type Error struct {
	Key    string // as it was given
	Field  string // "inbound_rules[2].src_nets"; "" the value as a whole
	Reason string
}

// Error is "<key>: <field>: <reason>".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Key + ": " + e.Reason
	}
	return e.Key + ": " + e.Field + ": " + e.Reason
}

// Decode understands a change: value nil says that the key is gone. A value that is not understood is a deletion, as it is for
// Felix, and an error that says why: *Error, or one that wraps ErrUnknownKey.
func Decode(path string, value []byte) (Update, error) {
	k, err := ParseKey(path)
	if err != nil || value == nil {
		return Update{Key: k}, err
	}
	r := &reader{key: k, path: path}
	v := r.value(value)
	if r.err != nil {
		return Update{Key: k}, r.err
	}
	return Update{Key: k, Value: v}, nil
}

// reader reads one value; the first thing that is wrong is its error.
type reader struct {
	key  Key
	path string
	err  error
}

func (r *reader) fail(field, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Key: r.path, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
}

// value reads what goes with the key's kind. No error is what no value is, where r.err is nil.
func (r *reader) value(data []byte) any {
	switch r.key.Kind {
	case KeyWorkload:
		return r.workload(data)
	case KeyHostEndpoint:
		return r.hostEndpoint(data)
	case KeyNetworkSet:
		return r.networkSet(data)
	case KeyTier:
		return r.tier(data)
	case KeyTieredPolicy, KeyPolicy:
		return r.policy(data)
	case KeyProfileRules:
		return r.profileRules(data)
	case KeyProfileLabels:
		v := Labels{}
		r.unmarshal(data, &v)
		return v
	case KeyPool:
		return r.pool(data)
	case KeyBlock:
		return r.block(data)
	case KeyHostIP:
		return r.addr("", string(data))
	case KeyConfig, KeyHostConfig:
		return string(data)
	case KeyReady:
		return string(data) == "true"
	case KeyWireguard:
		return r.wireguard(data)
	case KeyResource:
		return r.resource(data)
	}
	return json.RawMessage(data) // host metadata, affinities
}

func (r *reader) resource(data []byte) any {
	switch r.key.Type {
	case ResourceProfiles:
		return r.profileResource(data)
	case ResourceNodes:
		return r.node(data)
	case ResourceEndpointSlices:
		return r.slice(data)
	case ResourceServices:
		return r.service(data)
	case ResourceBGPConfigurations:
		return r.bgp(data)
	}
	return json.RawMessage(data)
}

// addr reads an address.
func (r *reader) addr(field, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		r.fail(field, "%.100q is not an IP address", text)
		return netip.Addr{}
	}
	return a.Unmap()
}

// optionalAddr is addr, but that an empty text is no address.
func (r *reader) optionalAddr(field, text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	return r.addr(field, text)
}

// network reads a network, or an address that stands for the network of itself alone. Host bits stay.
func (r *reader) network(field, text string) netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
		return p
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		r.fail(field, "%.100q is not a network", text)
		return netip.Prefix{}
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

// networks reads a list of networks, without host bits.
func (r *reader) networks(field string, list ...string) []netip.Prefix {
	if len(list) == 0 {
		return nil
	}
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = r.network(at(field, i), text).Masked()
	}
	return out
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
