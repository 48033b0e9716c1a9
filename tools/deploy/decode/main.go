// Command decode reads manifests from its standard input and decodes each strictly as Kubernetes' own type: an unknown kind or field, a
// duplicate, or a value of another type is an error. It prints what it has read, one object per line.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := decode(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func decode() error {
	if err := monitoring.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
		named, err := meta.Accessor(object)
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
		fmt.Println(kind.Kind, named.GetName())
	}
}
