package calc

import (
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// settings holds Felix's configuration parameters: those for all nodes, and those of this node, which take precedence.
type settings struct {
	global, host map[string]string
	dirty        bool
	sent         *felix.ConfigUpdate
}

func newSettings() *settings {
	return &settings{global: map[string]string{}, host: map[string]string{}, dirty: true}
}

func (x *settings) setValue(params map[string]string, name, value string) {
	if value == "" {
		delete(params, name)
	} else {
		params[name] = value
	}
	x.dirty = true
}

// Felix's numbers and names of the two sources.
const (
	sourceGlobal, globalName = 1, "datastore (global)"
	sourceHost, hostName     = 2, "datastore (per-host)"
)

// flushConfig returns the configuration if it changed, and always the first time: a driver waits for it.
func (x *settings) flushConfig() []*felix.ToDataplane {
	if !x.dirty {
		return nil
	}
	x.dirty = false
	merged := maps.Clone(x.global)
	maps.Copy(merged, x.host)
	u := &felix.ConfigUpdate{Config: merged, SourceToRawConfig: map[uint32]*felix.RawConfig{
		sourceGlobal: {Source: globalName, Config: maps.Clone(x.global)},
		sourceHost:   {Source: hostName, Config: maps.Clone(x.host)},
	}}
	if x.sent != nil && proto.Equal(x.sent, u) {
		return nil
	}
	x.sent = u
	return []*felix.ToDataplane{{Payload: &felix.ToDataplane_ConfigUpdate{ConfigUpdate: u}}}
}

// encapsulation finds which tunnels the pools need.
type encapsulation struct {
	pools map[string]model.Pool
	sent  *felix.Encapsulation
}

// flushEncapsulation returns which tunnels are needed, if that changed, and always the first time. Two deprecated parameters
// override the pools.
func (x *encapsulation) flushEncapsulation(params map[string]string) []*felix.ToDataplane {
	e := &felix.Encapsulation{}
	for _, p := range x.pools {
		e.IpipEnabled = e.IpipEnabled || p.IPIPMode != ""
		e.VxlanEnabled = e.VxlanEnabled || p.VXLANMode != "" && p.CIDR.Addr().Is4()
		e.VxlanEnabledV6 = e.VxlanEnabledV6 || p.VXLANMode != "" && p.CIDR.Addr().Is6()
	}
	override(params["IpInIpEnabled"], &e.IpipEnabled)
	override(params["VXLANEnabled"], &e.VxlanEnabled)
	if x.sent != nil && proto.Equal(x.sent, e) {
		return nil
	}
	x.sent = e
	return []*felix.ToDataplane{{Payload: &felix.ToDataplane_Encapsulation{Encapsulation: e}}}
}

func override(param string, flag *bool) {
	switch param {
	case "true":
		*flag = true
	case "false":
		*flag = false
	}
}
