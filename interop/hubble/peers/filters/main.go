// Command filters turns requests and flows of Hubble's API into the verdicts of Cilium's own filters: "schema" prints Cilium's messages, one
// field or value a line; "match" reads pairs of a GetFlowsRequest and a Flow, each behind its length, and prints for each "true", "false" or an
// error.
// Invariant: Cilium's code alone decodes and decides.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cilium/cilium/api/v1/flow"
	"github.com/cilium/cilium/api/v1/observer"
	"github.com/cilium/cilium/api/v1/peer"
	"github.com/cilium/cilium/api/v1/relay"
	v1 "github.com/cilium/cilium/pkg/hubble/api/v1"
	"github.com/cilium/cilium/pkg/hubble/filters"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "schema" {
		for _, file := range []protoreflect.FileDescriptor{flow.File_flow_flow_proto, observer.File_observer_observer_proto, peer.File_peer_peer_proto, relay.File_relay_relay_proto} {
			printFile(file)
		}
		return
	}
	if err := matchAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func printFile(file protoreflect.FileDescriptor) {
	for i := range file.Services().Len() {
		for j := range file.Services().Get(i).Methods().Len() {
			m := file.Services().Get(i).Methods().Get(j)
			fmt.Println("method", m.FullName(), m.Input().FullName(), m.Output().FullName(), m.IsStreamingClient(), m.IsStreamingServer())
		}
	}
	printEnums(file.Enums())
	printMessages(file.Messages())
}

func printMessages(messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		fmt.Println("message", m.FullName())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			switch {
			case f.Message() != nil:
				kind = string(f.Message().FullName())
			case f.Enum() != nil:
				kind = string(f.Enum().FullName())
			}
			oneof := ""
			if o := f.ContainingOneof(); o != nil {
				oneof = string(o.Name())
			}
			fmt.Println("field", f.FullName(), f.Number(), f.Cardinality(), kind, oneof)
		}
		printEnums(m.Enums())
		printMessages(m.Messages())
	}
}

func printEnums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		for j := range enums.Get(i).Values().Len() {
			v := enums.Get(i).Values().Get(j)
			fmt.Println("value", enums.Get(i).FullName(), v.Number(), v.Name())
		}
	}
}

func matchAll(from io.Reader, to io.Writer) error {
	in, out := bufio.NewReader(from), bufio.NewWriter(to)
	all := filters.DefaultFilters(slog.New(slog.DiscardHandler))
	for {
		req, f := &observer.GetFlowsRequest{}, &flow.Flow{}
		if err := readMessage(in, req); errors.Is(err, io.EOF) {
			return out.Flush()
		} else if err != nil {
			return err
		}
		if err := readMessage(in, f); err != nil {
			return err
		}
		white, err := filters.BuildFilterList(context.Background(), req.GetWhitelist(), all)
		black, errBlack := filters.BuildFilterList(context.Background(), req.GetBlacklist(), all)
		if err = errors.Join(err, errBlack); err != nil {
			fmt.Fprintf(out, "error %q\n", err)
			continue
		}
		fmt.Fprintln(out, filters.Apply(white, black, &v1.Event{Timestamp: f.GetTime(), Event: f}))
	}
}

func readMessage(in *bufio.Reader, m proto.Message) error {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}
