package main

import (
	"context"
	"os"
	"strings"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// bearer shows a token with every call, also in plain text: the cost of rights is measured without that of TLS.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

func (s settings) isSecured() bool { return s.ca != "" || s.token != "" }

// dial returns the options of a connection with the credentials of the settings, and none of the cloud.
func (s settings) dial() ([]option.ClientOption, error) {
	os.Unsetenv("BIGTABLE_EMULATOR_HOST")
	transport := insecure.NewCredentials()
	if s.ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(s.ca, "localhost"); err != nil {
			return nil, err
		}
	}
	options := []option.ClientOption{
		option.WithEndpoint(s.address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(transport)),
	}
	if s.token != "" {
		token, err := os.ReadFile(s.token)
		if err != nil {
			return nil, err
		}
		shown := bearer(strings.TrimSpace(string(token)))
		options = append(options, option.WithGRPCDialOption(grpc.WithPerRPCCredentials(shown)))
	}
	return options, nil
}
