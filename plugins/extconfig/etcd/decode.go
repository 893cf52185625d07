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

// errTooLong is the error for a value that was not parsed because of its length.
var errTooLong = fmt.Errorf("value is too long: at most %d bytes", MaxValue)

// decode returns the value stored under a key (config/…), and its key in v3. That key differs only if the stored key uses v2's
// spelling, or is not a clean path.
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

// mergeField is the JSON field with a value's merge terms; no message has a field of that name.
const mergeField = "@merge"

// terms splits a value into its message and its merge terms.
func terms(value []byte) ([]byte, event.Merge, error) {
	if len(value) > MaxValue || !bytes.Contains(value, []byte(mergeField)) {
		return value, event.Merge{}, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || fields[mergeField] == nil {
		return value, event.Merge{}, nil // decode reports errors, if any
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

// decodeTerms is decode for a value that may have merge terms.
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

// plain returns an error of protojson without the spaces that vary from build to build.
func plain(err error) error {
	return errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
}

// spelledByV2 returns ligato's v2 key for a v3 key. Only enums and the DHCP proxy differ.
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

// modern returns JSON of v2 with v3's names for enum values; false: nothing to change.
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
	d.UseNumber() // keeps the digits of unchanged numbers
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

// snake returns the name in the .proto of a field with such a JSON name.
func snake(field string) string { return strings.Replace(field, "l3Protocol", "l3_protocol", 1) }
