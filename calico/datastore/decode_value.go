package datastore

import (
	"encoding/json"
)

// value reads the value for the key's kind. A nil result with r.err nil is a valid value without meaning.
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
		return r.readNode(data)
	case ResourceEndpointSlices:
		return r.slice(data)
	case ResourceServices:
		return r.service(data)
	case ResourceBGPConfigurations:
		return r.bgp(data)
	}
	return json.RawMessage(data)
}

// Decode decodes a change; a nil value means that the key is deleted. A value that does not parse counts as a deletion, as
// in Felix, and gives an error: an *Error, or one that wraps ErrUnknownKey.
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
