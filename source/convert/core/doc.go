// Package core turns Services, EndpointSlices, Pods, Nodes and the other objects of Kubernetes that are no policies into model values, and what an
// API server would refuse into problems.
//
// Invariant: conversion is pure. Equal objects give equal values: lists whose order has no meaning are sorted and free of duplicates, and empty
// lists are nil. The value of an object with problems is not used.
package core

import "github.com/contiv-agent/contiv-agent/source/convert/check"

// problems are those of one object.
type problems struct{ check.Problems }
