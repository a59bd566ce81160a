print('{"valid": true}')
