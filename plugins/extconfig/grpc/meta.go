package grpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
)

// class is the class of all models.
const class = "config"

// plainName is the template of a model whose values have a name field.
const plainName = "{{.Name}}"

// nameTemplates are the templates of other names, in ligato's form. Clients form names with them.
var nameTemplates = map[string]string{
	"contiv.linux.host-port":      "{{.Protocol}}/{{.HostAddress}}/{{.HostPort}}",
	"contiv.linux.node-port":      "{{.Protocol}}/{{.Port}}",
	"contiv.vpp.interface-acls":   "{{.Interface}}",
	"contiv.vpp.sctp-ports":       "{{.Interface}}",
	"contiv.vpp.policer":          "{{.Interface}}/{{.Direction}}",
	"contiv.vpp.source-ranges":    "{{.Label}}",
	"contiv.vpp.cnat-translation": "{{if .Vip.Interface}}{{.Vip.Interface}}/{{.Vip.Family}}{{else}}{{.Vip.Address}}{{end}}/{{.Vip.Port}}/{{.Protocol}}",
	"contiv.vpp.reject-route":     `vrf/{{.VrfId}}/{{with ipnet .DstNetwork}}{{printf "dst/%s/%d" .IP .MaskSize}}{{else}}{{printf "dst/%s" .DstNetwork}}{{end}}`,
	"linux.l3.arp":                "{{.Interface}}/{{.IpAddress}}",
	"linux.l3.route":              `{{with ipnet .DstNetwork}}{{printf "%s/%d" .IP .MaskSize}}{{else}}{{.DstNetwork}}{{end}}/{{.OutgoingInterface}}`,
	"vpp.abfs.abf":                "{{.Index}}",
	"vpp.ipsec.sa":                "{{.Index}}",
	"vpp.ipsec.spd":               "{{.Index}}",
	"vpp.l2.fib":                  "{{.BridgeDomain}}/mac/{{.PhysAddress}}",
	"vpp.l2.xconnect":             "{{.ReceiveInterface}}",
	"vpp.nat.dnat44":              "{{.Label}}",
	"vpp.nat.nat44-pool":          "{{if .Name}}{{.Name}}{{else}}vrf/{{.VrfId}}/address/{{.FirstIp}}{{if and .LastIp (ne .FirstIp .LastIp)}}-{{.LastIp}}{{end}}{{end}}",
	"vpp.nat.nat44-vrf":           "vrfid/{{.SrcVrfId}}",
	"vpp.nat.nat44-vrf-route":     "vrfid/{{.SrcVrfId}}/destvrfid/{{.DestVrfId}}",
	"vpp.arp":                     "{{.Interface}}/{{.IpAddress}}",
	"vpp.dhcp-proxy":              "{{ protoip .SourceIpAddress}}/rx-vrf/{{.RxVrfId}}",
	"vpp.exception":               "reason/{{.Reason}}",
	"vpp.ipredirect":              "l3/{{.L3Protocol}}/tx/{{.TxInterface}}",
	"vpp.l3xconnect":              "{{.Interface}}/protocol/{{.Protocol}}",
	"vpp.route": `{{if .OutgoingInterface}}{{printf "if/%s/" .OutgoingInterface}}{{end}}vrf/{{.VrfId}}/` +
		`{{with ipnet .DstNetwork}}{{printf "dst/%s/%d/" .IP .MaskSize}}{{else}}{{printf "dst/%s/" .DstNetwork}}{{end}}{{if .NextHopAddr}}gw/{{.NextHopAddr}}{{end}}`,
	"vpp.span":      "{{.InterfaceFrom}}/to/{{.InterfaceTo}}",
	"vpp.teib":      "{{.Interface}}/peer/{{.PeerAddr}}",
	"vpp.tohost":    "l3/{{.L3Protocol}}/l4/{{.L4Protocol}}/port/{{.Port}}",
	"vpp.vrf-table": "id/{{.Id}}/protocol/{{.Protocol}}",
	"vpp.vrrp":      "{{.Interface}}/vrid/{{.VrId}}",
}

// file returns the file that defines the message of a model.
func file(m kv.Model) protoreflect.FileDescriptor {
	return m.New().ProtoReflect().Descriptor().ParentFile()
}

func (s *Server) knownModels(ctx context.Context, req *generic.KnownModelsRequest) (proto.Message, error) {
	if _, err := caller(ctx); err != nil {
		return nil, err
	}
	resp := &generic.KnownModelsResponse{}
	if req.GetClass() != "" && req.GetClass() != class {
		return resp, nil
	}
	for _, m := range kv.Models() {
		detail := &generic.ModelDetail{
			Spec: &generic.ModelSpec{Module: m.Module, Version: m.Version, Type: m.Type, Class: class}, ProtoName: m.Proto,
			Options: []*generic.ModelDetail_Option{{Key: "protoFile", Values: []string{file(m).Path()}}},
		}
		if !m.Singleton() {
			template := nameTemplates[m.Name]
			if template == "" {
				template = plainName
			}
			detail.Options = append(detail.Options, &generic.ModelDetail_Option{Key: "nameTemplate", Values: []string{template}})
		}
		resp.KnownModels = append(resp.KnownModels, detail)
	}
	return resp, nil
}

func (s *Server) protoFile(ctx context.Context, req *generic.ProtoFileDescriptorRequest) (proto.Message, error) {
	if _, err := caller(ctx); err != nil {
		return nil, err
	}
	for _, m := range kv.Models() {
		f := file(m)
		if f.Path() != req.GetFullProtoFileName() {
			continue
		}
		resp := &generic.ProtoFileDescriptorResponse{FileDescriptor: protodesc.ToFileDescriptorProto(f), FileImportDescriptors: &descriptorpb.FileDescriptorSet{}}
		imported(f, map[string]bool{f.Path(): true}, resp.GetFileImportDescriptors())
		return resp, nil
	}
	return nil, status.Errorf(codes.NotFound, "no model is defined in %q", req.GetFullProtoFileName())
}

// imported adds all imports of a file, each once.
func imported(f protoreflect.FileDescriptor, seen map[string]bool, into *descriptorpb.FileDescriptorSet) {
	for i := range f.Imports().Len() {
		if next := f.Imports().Get(i).FileDescriptor; !seen[next.Path()] {
			seen[next.Path()] = true
			imported(next, seen, into)
			into.File = append(into.File, protodesc.ToFileDescriptorProto(next))
		}
	}
}
