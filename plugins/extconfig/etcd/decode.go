package etcd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/iptables"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
)

// errTooLong is what is said of a value that was not even looked at.
var errTooLong = fmt.Errorf("value is too long: at most %d bytes", MaxValue)

// decode is the value stored under a key (config/…), and the key that v3 has for it: another one only if the key is spelled as v2
// does, or is no clean path.
func decode(raw string, value []byte) (key string, msg proto.Message, err error) {
	if len(value) > MaxValue {
		return "", nil, fmt.Errorf("%w, this one has %d", errTooLong, len(value))
	}
	spelled := path.Clean(raw)
	model, _, found := kv.Lookup(spelled)
	if !found {
		return "", nil, kv.ErrNoModel
	}
	msg = model.New()
	if err := protojson.Unmarshal(value, msg); err != nil {
		now, changed := modern(msg, value)
		if !changed || protojson.Unmarshal(now, msg) != nil {
			return "", nil, fmt.Errorf("not the JSON of a %s: %w", model.Proto, plain(err))
		}
	}
	if key = kv.Key(msg); key != spelled && spelledByV2(msg, key) != spelled {
		return "", nil, fmt.Errorf("%w: its key is %q", kv.ErrKeyMismatch, key)
	}
	if err := kv.Check(key, msg); err != nil {
		return "", nil, err
	}
	return key, msg, nil
}

// mergeField is the field of a value that says how it is merged; no message has one of that name.
const mergeField = "@merge"

// terms are a value without what it says of how it is merged, and that.
func terms(value []byte) ([]byte, event.Merge, error) {
	if len(value) > MaxValue || !bytes.Contains(value, []byte(mergeField)) {
		return value, event.Merge{}, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || fields[mergeField] == nil {
		return value, event.Merge{}, nil // decode says what is wrong, if anything is
	}
	var words string
	if err := json.Unmarshal(fields[mergeField], &words); err != nil {
		return nil, event.Merge{}, fmt.Errorf("%s: %w", mergeField, err)
	}
	delete(fields, mergeField)
	merge, err := event.ParseMerge(words)
	if err != nil {
		return nil, event.Merge{}, fmt.Errorf("%s: %w", mergeField, err)
	}
	rest, err := json.Marshal(fields)
	return rest, merge, err
}

// decodeTerms is decode for a value that may say how it is merged.
func decodeTerms(raw string, value []byte) (key string, msg proto.Message, merge event.Merge, err error) {
	rest, merge, err := terms(value)
	if err != nil {
		return "", nil, event.Merge{}, err
	}
	if key, msg, err = decode(raw, rest); err != nil {
		return "", nil, event.Merge{}, err
	}
	if err := merge.Check(msg.ProtoReflect().Descriptor()); err != nil {
		return "", nil, event.Merge{}, err
	}
	return key, msg, merge, nil
}

// plain is an error of protojson's without the spaces that it varies from build to build.
func plain(err error) error {
	return errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
}

// spelledByV2 is the key that ligato's v2 has for a value whose key is key in v3. Only enums and the DHCP proxy differ.
func spelledByV2(msg proto.Message, key string) string {
	switch msg.(type) {
	case *l3.DHCPProxy:
		before, _, _ := strings.Cut(key, "/rx-vrf/")
		return before
	case *punt.ToHost, *punt.IPRedirect:
		return strings.Replace(key, "/l3/IPV", "/l3/IPv", 1)
	}
	return key
}

// modern is JSON of v2 with the names that v3 has for values of enums; false: there is nothing to change.
func modern(msg proto.Message, value []byte) ([]byte, bool) {
	var field string
	switch msg.(type) {
	case *l3.IPScanNeighbor:
		field = "mode"
	case *punt.ToHost, *punt.IPRedirect:
		field = "l3Protocol"
	case *iptables.RuleChain:
		field = "protocol"
	default:
		return nil, false
	}
	fields := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber() // what is not to be changed stays digit by digit
	if err := d.Decode(&fields); err != nil || d.More() {
		return nil, false
	}
	changed := false
	for _, name := range []string{field, snake(field)} {
		if s, ok := fields[name].(string); ok && (s == "IPv4" || s == "IPv6") {
			fields[name], changed = strings.ToUpper(s), true
		}
	}
	if !changed {
		return nil, false
	}
	out, err := json.Marshal(fields)
	return out, err == nil
}

// snake is the name in the .proto of a field of those above.
func snake(field string) string { return strings.Replace(field, "l3Protocol", "l3_protocol", 1) }
